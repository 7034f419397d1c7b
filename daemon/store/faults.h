#pragma once

namespace moment::store {

// Mistakes that tests plant to see that their harness reports them; all off outside tests.
struct StoreFaults {
  bool record_before_sync = false;  // the record is made durable before the data files are
  bool reuse_before_erase = false;  // files of dropped commits are free while their records stay
  bool erase_without_sync = false;  // the erasure of a record is not synced before reuse
  bool mark_before_sync = false;    // files are marked before the first record is durable
  bool single_record_copy = false;  // only the first copy is written
  bool rewrite_pinned = false;      // files of a pin stay writable in this process
  bool pin_without_mode = false;    // their permissions do not say that they were pinned
};

}  // namespace moment::store
