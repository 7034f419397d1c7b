// The C ABI over StoreClient: struct sizes, status codes, the error of the thread. Nothing else.
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/include/moment/moment.h"
#include "client/src/c_api_support.h"
#include "client/src/errors.h"
#include "client/src/socket_path.h"
#include "client/src/store_client.h"

#ifndef MOMENT_VERSION
#error "the build defines MOMENT_VERSION"
#endif

using moment::client::CopyId;
using moment::client::CopyText;
using moment::client::Deliver;
using moment::client::Guard;
using moment::client::Standing;
using moment::client::StoreClient;
using moment::client::ToCommit;
using moment::client::WithStore;
namespace v1 = moment::v1;

namespace {

// The caller's struct, as far as its version of it goes, over the defaults of this one.
template <typename Options>
absl::StatusOr<Options> Adopt(const Options* given, Options defaults) {
  if (given == nullptr || given->struct_size < sizeof(size_t)) {
    return absl::InvalidArgumentError("an options struct is NULL, or its struct_size is not set");
  }
  if (given->struct_size > sizeof(Options)) {
    return absl::InvalidArgumentError(
        absl::StrCat("an options struct of ", given->struct_size, " bytes; this library knows ",
                     sizeof(Options), ": it is older than the header the program was built with"));
  }
  std::memcpy(static_cast<void*>(&defaults), given, given->struct_size);
  return defaults;
}

absl::Status DeliverCommit(const absl::StatusOr<v1::CommitInfo>& info, moment_commit* out) {
  if (info.ok() && out != nullptr) {
    *out = ToCommit(*info);
  }
  return info.status();
}

absl::Status DeliverBytes(const std::string& bytes, void* data, size_t capacity,
                          size_t* length_bytes) {
  if (length_bytes == nullptr) {
    return absl::InvalidArgumentError("no room for the length");
  }
  *length_bytes = bytes.size();
  if (data != nullptr) {
    std::memcpy(data, bytes.data(), std::min(capacity, bytes.size()));
  }
  return absl::OkStatus();
}

moment_statistics ToStatistics(const v1::StepDone& done) {
  const v1::StepStatistics& from = done.statistics();
  moment_statistics to = MOMENT_STATISTICS_INIT;
  to.sequence = done.sequence();
  to.replayed = done.replayed() ? 1 : 0;
  to.bytes_read = from.bytes_read();
  to.bytes_written = from.bytes_written();
  to.total_seconds = from.total_seconds();
  to.waiting_for_read_seconds = from.waiting_for_read_seconds();
  to.waiting_for_copy_seconds = from.waiting_for_copy_seconds();
  to.waiting_for_adam_seconds = from.waiting_for_adam_seconds();
  to.waiting_for_frame_seconds = from.waiting_for_frame_seconds();
  to.waiting_for_commit_seconds = from.waiting_for_commit_seconds();
  to.adam_seconds = from.adam_seconds();
  to.chunks = from.chunks();
  to.chunks_in_pool = from.chunks_in_pool();
  return to;
}

moment_info ToInfo(const StoreClient& client) {
  const Standing standing = client.standing();
  const v1::OpenResponse opened = client.opened();
  moment_info info = MOMENT_INFO_INIT;
  info.empty = standing.empty ? 1 : 0;
  info.parameters_stale = standing.stale || standing.stale_tensors > 0 ? 1 : 0;
  info.step_in_flight = standing.in_flight.has_value() ? 1 : 0;
  info.rewound = standing.rewound ? 1 : 0;
  info.sequence = standing.answered.sequence;
  CopyId(standing.answered.step_id, info.step_id);
  info.commit_every = opened.commit_every();
  info.profile = static_cast<moment_profile>(opened.profile());
  info.reserved_bytes = opened.reserved_bytes();
  info.resident_bytes = opened.resident_bytes();
  info.lease_seconds = opened.lease_seconds();
  info.reconnects = standing.reconnects;
  CopyText(opened.store_uuid(), info.store_uuid);
  CopyText(opened.device(), info.device);
  CopyText(opened.io_engine(), info.io_engine);
  CopyText(client.transport(), info.transport);
  return info;
}

// NULL: all of them.
absl::optional<absl::Span<const moment_run>> Runs(const moment_run* runs, size_t run_count) {
  if (runs == nullptr) {
    return absl::nullopt;
  }
  return absl::Span<const moment_run>(runs, run_count);
}

std::string Blob(const void* blob, size_t blob_bytes) {
  return blob == nullptr ? std::string() : std::string(static_cast<const char*>(blob), blob_bytes);
}

}  // namespace

extern "C" {

moment_status moment_open(const moment_open_options* options, moment_store** store) {
  return Guard([&]() -> absl::Status {
    if (store == nullptr) {
      return absl::InvalidArgumentError("no room for the store");
    }
    *store = nullptr;
    absl::StatusOr<moment_open_options> adopted =
        Adopt(options, moment_open_options(MOMENT_OPEN_OPTIONS_INIT));
    MOMENT_CLIENT_RETURN_IF_ERROR(adopted.status());
    absl::StatusOr<std::unique_ptr<StoreClient>> client = StoreClient::Open(*adopted);
    MOMENT_CLIENT_RETURN_IF_ERROR(client.status());
    *store = new moment_store{*std::move(client)};
    return absl::OkStatus();
  });
}

moment_status moment_close(moment_store* store) {
  if (store == nullptr || !store->client->mine()) {
    return MOMENT_OK;
  }
  return Guard([&] {
    const std::unique_ptr<moment_store> owned(store);
    return owned->client->Close();
  });
}

moment_status moment_ping(const char* socket, double wait_seconds) {
  return Guard([&]() -> absl::Status {
    MOMENT_CLIENT_RETURN_IF_ERROR(moment::client::CheckNotForked());
    auto path = moment::client::ResolveSocketPath(socket == nullptr ? "" : socket);
    MOMENT_CLIENT_RETURN_IF_ERROR(path.status());
    return moment::client::AwaitHealth(*path, absl::Seconds(wait_seconds));
  });
}

moment_status moment_get_info(moment_store* store, moment_info* info) {
  return WithStore(store, [&](StoreClient& client) { return Deliver(ToInfo(client), info); });
}

moment_status moment_commits(moment_store* store, moment_commit* commits, size_t capacity,
                             size_t* count) {
  return WithStore(store, [&](StoreClient& client) -> absl::Status {
    if (count == nullptr) {
      return absl::InvalidArgumentError("no room for the count");
    }
    const v1::OpenResponse opened = client.opened();
    *count = static_cast<size_t>(opened.commits_size());
    for (size_t i = 0; commits != nullptr && i < std::min(capacity, *count); ++i) {
      commits[i] = ToCommit(opened.commits(static_cast<int>(i)));
    }
    return absl::OkStatus();
  });
}

moment_status moment_blob(moment_store* store, void* data, size_t capacity, size_t* length_bytes) {
  return WithStore(store, [&](StoreClient& client) {
    return DeliverBytes(client.opened().blob(), data, capacity, length_bytes);
  });
}

moment_status moment_warnings(moment_store* store, char* text, size_t capacity,
                              size_t* length_bytes) {
  return WithStore(store, [&](StoreClient& client) {
    const std::string lines = absl::StrJoin(client.opened().warnings(), "\n");
    if (text != nullptr && capacity > 0) {
      text[std::min(capacity - 1, lines.size())] = '\0';
    }
    return DeliverBytes(lines, text, capacity == 0 ? 0 : capacity - 1, length_bytes);
  });
}

moment_status moment_added(moment_store* store, uint32_t* tensors, size_t capacity, size_t* count) {
  return WithStore(store, [&](StoreClient& client) -> absl::Status {
    if (count == nullptr) {
      return absl::InvalidArgumentError("no room for the count");
    }
    const std::vector<uint32_t> added = client.added();
    *count = added.size();
    for (size_t i = 0; tensors != nullptr && i < std::min(capacity, *count); ++i) {
      tensors[i] = added[i];
    }
    return absl::OkStatus();
  });
}

moment_status moment_attach(moment_store* store, void* const* parameters, size_t count) {
  return WithStore(store, [&](StoreClient& client) {
    return client.Attach({parameters, parameters == nullptr ? 0 : count});
  });
}

moment_status moment_detach(moment_store* store) {
  return WithStore(store, [](StoreClient& client) { return client.Detach(); });
}

moment_status moment_step(moment_store* store, const moment_step_options* options,
                          moment_statistics* statistics) {
  return WithStore(store, [&](StoreClient& client) -> absl::Status {
    absl::StatusOr<moment_step_options> adopted =
        Adopt(options, moment_step_options(MOMENT_STEP_OPTIONS_INIT));
    MOMENT_CLIENT_RETURN_IF_ERROR(adopted.status());
    const absl::StatusOr<v1::StepDone> done = client.Step(*adopted);
    MOMENT_CLIENT_RETURN_IF_ERROR(done.status());
    return Deliver(ToStatistics(*done), statistics);
  });
}

moment_status moment_skip(moment_store* store, const void* blob, size_t blob_bytes,
                          uint64_t* sequence) {
  return WithStore(store, [&](StoreClient& client) {
    const absl::StatusOr<uint64_t> skipped = client.Skip(Blob(blob, blob_bytes));
    if (skipped.ok() && sequence != nullptr) {
      *sequence = *skipped;
    }
    return skipped.status();
  });
}

moment_status moment_flush(moment_store* store, moment_commit* commit) {
  return WithStore(store,
                   [&](StoreClient& client) { return DeliverCommit(client.Flush(), commit); });
}

moment_status moment_refresh(moment_store* store, const moment_run* runs, size_t run_count,
                             moment_commit* commit) {
  return WithStore(store, [&](StoreClient& client) {
    return DeliverCommit(client.Refresh({runs, run_count}), commit);
  });
}

moment_status moment_refresh_all(moment_store* store, int32_t discard, uint64_t start_sequence,
                                 const void* blob, size_t blob_bytes, moment_commit* commit) {
  return WithStore(store, [&](StoreClient& client) {
    return DeliverCommit(client.RefreshAll(discard != 0, start_sequence, Blob(blob, blob_bytes)),
                         commit);
  });
}

moment_status moment_materialize(moment_store* store, const moment_run* runs, size_t run_count) {
  return WithStore(store, [&](StoreClient& client) {
    return client.Materialize({runs, run_count});
  });
}

moment_status moment_rollback(moment_store* store, uint64_t sequence, moment_commit* commit) {
  return WithStore(
      store, [&](StoreClient& client) { return DeliverCommit(client.Rollback(sequence), commit); });
}

moment_status moment_read_tensors(moment_store* store, const moment_buffer* buffers, size_t count,
                                  uint64_t* t) {
  return WithStore(store, [&](StoreClient& client) -> absl::Status {
    if (buffers == nullptr && count > 0) {
      return absl::InvalidArgumentError("a count without its array");
    }
    return client.ReadTensors({buffers, count}, t);
  });
}

moment_status moment_write_tensors(moment_store* store, const moment_write_options* options,
                                   moment_commit* commit) {
  return WithStore(store, [&](StoreClient& client) -> absl::Status {
    absl::StatusOr<moment_write_options> adopted =
        Adopt(options, moment_write_options(MOMENT_WRITE_OPTIONS_INIT));
    MOMENT_CLIENT_RETURN_IF_ERROR(adopted.status());
    return DeliverCommit(client.WriteTensors(*adopted), commit);
  });
}

moment_status moment_reset_moments(moment_store* store, const moment_run* runs, size_t run_count,
                                   moment_commit* commit) {
  return WithStore(store, [&](StoreClient& client) {
    return DeliverCommit(client.ResetMoments(Runs(runs, run_count)), commit);
  });
}

moment_status moment_digest(moment_store* store, const moment_run* runs, size_t run_count,
                            moment_tensor_digest* digests, size_t capacity, size_t* count) {
  return WithStore(store, [&](StoreClient& client) -> absl::Status {
    if (count == nullptr) {
      return absl::InvalidArgumentError("no room for the count");
    }
    const auto found = client.Digest(Runs(runs, run_count));
    MOMENT_CLIENT_RETURN_IF_ERROR(found.status());
    *count = found->size();
    for (size_t i = 0; digests != nullptr && i < std::min(capacity, *count); ++i) {
      digests[i] = (*found)[i];
    }
    return absl::OkStatus();
  });
}

moment_status moment_steps(moment_store* store, uint64_t* t, size_t capacity, size_t* count) {
  return WithStore(store, [&](StoreClient& client) -> absl::Status {
    if (count == nullptr) {
      return absl::InvalidArgumentError("no room for the count");
    }
    const absl::StatusOr<std::vector<uint64_t>> steps = client.Steps();
    MOMENT_CLIENT_RETURN_IF_ERROR(steps.status());
    *count = steps->size();
    for (size_t i = 0; t != nullptr && i < std::min(capacity, *count); ++i) {
      t[i] = (*steps)[i];
    }
    return absl::OkStatus();
  });
}

moment_status moment_get_operation(moment_store* store, const char* id,
                                   moment_operation* operation) {
  return WithStore(store, [&](StoreClient& client) -> absl::Status {
    const absl::StatusOr<v1::Operation> found = client.GetOperation(id == nullptr ? "" : id);
    MOMENT_CLIENT_RETURN_IF_ERROR(found.status());
    moment_operation out = MOMENT_OPERATION_INIT;
    out.done = found->done() ? 1 : 0;
    out.bytes_done = found->bytes_done();
    out.bytes_total = found->bytes_total();
    out.error_code = found->error_code();
    CopyText(found->kind(), out.kind);
    CopyText(found->error_message(), out.error_message);
    return Deliver(out, operation);
  });
}

moment_status moment_cancel(moment_store* store) {
  return WithStore(store, [](StoreClient& client) {
    client.Cancel();
    return absl::OkStatus();
  });
}

const char* moment_last_error(void) { return moment::client::LastError().c_str(); }

const char* moment_status_name(moment_status status) {
  switch (static_cast<int>(status)) {
    case MOMENT_REWOUND:
      return "REWOUND";
    case MOMENT_FORKED:
      return "FORKED";
    default: {
      thread_local std::string name;
      name = absl::StatusCodeToString(static_cast<absl::StatusCode>(status));
      return name.c_str();
    }
  }
}

const char* moment_version(void) { return MOMENT_VERSION; }

}  // extern "C"
