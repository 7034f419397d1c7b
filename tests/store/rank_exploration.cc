#include "tests/store/rank_exploration.h"

#include <algorithm>
#include <compare>
#include <optional>
#include <set>
#include <vector>

#include "daemon/store/commit_rules.h"

namespace moment::store {
namespace {

struct Record {
  uint64_t id = 0;
  uint64_t sequence = 0;
  bool due = false;
  uint64_t image = 0;  // the id that wrote its files
  auto operator<=>(const Record&) const = default;
};

struct Rank {
  bool rolling = false;
  uint64_t sent = 0;
  uint64_t applied = 0;
  uint64_t answered = 0;
  std::vector<Record> records;  // by id
  auto operator<=>(const Rank&) const = default;
};

struct World {
  std::vector<Rank> ranks;
  int crashes = 0;
  int changes = 0;
  int early_commits = 0;
  std::optional<uint64_t> target;  // of the rollback under way
  auto operator<=>(const World&) const = default;
};

std::vector<RecordFacts> FactsOf(const std::vector<Record>& records) {
  std::vector<RecordFacts> facts;
  for (const Record& record : records) {
    facts.push_back({record.id, record.sequence, record.due});
  }
  return facts;
}

std::vector<Record> Selected(const std::vector<Record>& records, const std::vector<bool>& keep) {
  std::vector<Record> kept;
  for (size_t i = 0; i < records.size(); ++i) {
    if (keep[i]) {
      kept.push_back(records[i]);
    }
  }
  return kept;
}

std::vector<Record> Live(const std::vector<Record>& records) {
  return Selected(records, LiveRecords(FactsOf(records)));
}

std::set<uint64_t> LiveSequences(const Rank& rank) {
  std::set<uint64_t> sequences;
  for (const Record& record : Live(rank.records)) {
    sequences.insert(record.sequence);
  }
  return sequences;
}

std::set<uint64_t> CommonSequences(const World& world) {
  std::set<uint64_t> common = LiveSequences(world.ranks[0]);
  for (const Rank& rank : world.ranks) {
    std::set<uint64_t> both;
    for (const uint64_t sequence : LiveSequences(rank)) {
      if (common.contains(sequence)) {
        both.insert(sequence);
      }
    }
    common = both;
  }
  return common;
}

// Only the order of ids and which images are equal matter.
void Canonicalise(Rank& rank) {
  std::set<uint64_t> values;
  for (const Record& record : rank.records) {
    values.insert(record.id);
    values.insert(record.image);
  }
  const auto index = [&](uint64_t value) {
    return static_cast<uint64_t>(std::distance(values.begin(), values.find(value)));
  };
  for (Record& record : rank.records) {
    record.id = index(record.id);
    record.image = index(record.image);
  }
  std::sort(rank.records.begin(), rank.records.end());
}

class Explorer {
 public:
  explicit Explorer(const Exploration& exploration) : e_(exploration) {
    World start;
    Rank rank;
    rank.records = {{1, 0, true, 1}};
    Canonicalise(rank);
    start.ranks.assign(static_cast<size_t>(e_.ranks), rank);
    start.crashes = e_.crashes;
    start.changes = e_.changes;
    start.early_commits = e_.early_commits;
    Visit(start);
  }

  ExplorationResult Run() {
    while (!stack_.empty() && result_.common && result_.refused.empty()) {
      const World world = stack_.back();
      stack_.pop_back();
      Leave(world);
    }
    result_.states = seen_.size();
    return result_;
  }

 private:
  void Visit(World world) {
    for (Rank& rank : world.ranks) {
      Canonicalise(rank);
    }
    if (std::none_of(world.ranks.begin(), world.ranks.end(),
                     [](const Rank& rank) { return rank.rolling; })) {
      world.target.reset();
    }
    if (seen_.insert(world).second) {
      stack_.push_back(std::move(world));
    }
  }

  void Leave(const World& world) {
    const std::set<uint64_t> common = CommonSequences(world);
    if (common.empty()) {
      result_.common = false;
      return;
    }
    Crash(world, *common.rbegin());
    uint64_t answered = UINT64_MAX;
    for (size_t i = 0; i < world.ranks.size(); ++i) {
      answered = std::min(answered, world.ranks[i].answered);
      Measure(world.ranks[i]);
      Move(world, i);
    }
    if (!world.target.has_value() && answered > *common.rbegin()) {
      result_.lost_steps = std::max(result_.lost_steps, answered - *common.rbegin());
    }
  }

  void Measure(const Rank& rank) {
    std::set<uint64_t> images;
    for (const Record& record : rank.records) {
      images.insert(record.image);
    }
    const uint64_t uncommitted = LiveSequences(rank).contains(rank.applied) ? 0 : 1;
    result_.records = std::max<uint64_t>(result_.records, rank.records.size());
    result_.images = std::max<uint64_t>(
        result_.images, images.size() + uncommitted + (rank.sent > rank.applied ? 1 : 0));
  }

  void Crash(const World& world, uint64_t common) {
    if (world.crashes == 0) {
      return;
    }
    World next = world;
    --next.crashes;
    next.target = common;
    for (Rank& rank : next.ranks) {
      const uint64_t newest = *LiveSequences(rank).rbegin();
      rank = {true, newest, newest, newest, rank.records};
    }
    Visit(next);
  }

  void Move(const World& world, size_t i) {
    const Rank& rank = world.ranks[i];
    if (rank.rolling) {
      RollBack(world, i);
      return;
    }
    const bool running = !world.target.has_value();
    const std::vector<uint64_t> pending = Pending(rank);
    if (running) {
      Send(world, i);
    }
    if (rank.applied < rank.sent) {
      World next = world;
      next.ranks[i].applied = rank.sent;
      Visit(next);
    }
    const bool waits = e_.answer_waits && !pending.empty() && pending.front() < rank.applied;
    if (rank.answered < rank.applied && !waits) {
      World next = world;
      next.ranks[i].answered = rank.applied;
      Visit(next);
    }
    if (!pending.empty()) {
      Commit(world, i, pending.front(), true);
    }
    if (i == 0 && running && pending.empty()) {
      CommitBetweenSteps(world);
    }
  }

  // Due sequences that are applied and not committed.
  std::vector<uint64_t> Pending(const Rank& rank) const {
    uint64_t last_due = 0;
    std::set<uint64_t> due;
    for (const Record& record : Live(rank.records)) {
      if (record.due) {
        last_due = std::max(last_due, record.sequence);
        due.insert(record.sequence);
      }
    }
    std::vector<uint64_t> pending;
    for (uint64_t n = last_due + 1; n <= rank.applied; ++n) {
      if (IsDue(n, e_.commit_every) && !due.contains(n)) {
        pending.push_back(n);
      }
    }
    return pending;
  }

  void Send(const World& world, size_t i) {
    const Rank& rank = world.ranks[i];
    const bool all_answered =
        std::all_of(world.ranks.begin(), world.ranks.end(),
                    [&](const Rank& other) { return other.answered >= rank.sent; });
    if (rank.answered != rank.sent || rank.sent >= e_.steps || !all_answered) {
      return;
    }
    const auto kept = KeptAtArrival(FactsOf(rank.records), rank.sent + 1);
    if (!kept.ok()) {
      result_.refused = std::string(kept.status().message());
      return;
    }
    World next = world;
    next.ranks[i].records = Selected(rank.records, *kept);
    ++next.ranks[i].sent;
    Visit(next);
  }

  void Commit(World next, size_t i, uint64_t sequence, bool due) {
    Rank& rank = next.ranks[i];
    const uint64_t id = NextId(rank);
    Prepare(rank);
    rank.records.push_back({id, sequence, due, id});
    Visit(next);
  }

  void CommitBetweenSteps(const World& world) {
    const Rank& rank = world.ranks[0];
    const std::vector<Record> live = Live(rank.records);
    const auto own = std::find_if(live.begin(), live.end(), [&](const Record& record) {
      return record.sequence == rank.applied;
    });
    const bool idle = rank.answered == rank.applied && rank.applied == rank.sent;
    if (world.changes > 0 && idle) {
      World next = world;
      --next.changes;
      Commit(next, 0, rank.applied, e_.inherit_due && own != live.end() && own->due);
    }
    if (world.early_commits > 0 && own == live.end() && rank.applied == rank.sent) {
      World next = world;
      --next.early_commits;
      Commit(next, 0, rank.applied, false);
    }
  }

  void RollBack(World next, size_t i) {
    Rank& rank = next.ranks[i];
    const uint64_t target = *next.target;
    const uint64_t id = NextId(rank);
    for (const Record& record : Live(rank.records)) {
      if (record.sequence == target) {
        Prepare(rank);
        rank.records.push_back({id, target, true, record.image});
        break;
      }
    }
    rank = {false, target, target, target, rank.records};
    Visit(next);
  }

  void Prepare(Rank& rank) const {
    if (e_.erase_dead) {
      rank.records = Live(rank.records);
    }
  }

  static uint64_t NextId(const Rank& rank) {
    uint64_t id = 0;
    for (const Record& record : rank.records) {
      id = std::max(id, record.id);
    }
    return id + 1;
  }

  const Exploration e_;
  ExplorationResult result_;
  std::set<World> seen_;
  std::vector<World> stack_;
};

}  // namespace

ExplorationResult Explore(const Exploration& exploration) { return Explorer(exploration).Run(); }

}  // namespace moment::store
