#pragma once

// fd.sock: descriptors by SCM_RIGHTS on a SOCK_SEQPACKET Unix socket, one request and one reply a
// connection. gRPC cannot carry descriptors; the session's token (OpenResponse.token) ties them to
// it.

#include <stdint.h>

#define MOMENT_DESCRIPTORS_MAGIC 0x4b434f534446ull /* "FDSOCK" */
#define MOMENT_DESCRIPTORS_MAX 64                  /* a message; the kernel's limit is 253 */

#ifdef __cplusplus
namespace moment::v1 {
#endif

enum DescriptorRequestKind {
  DESCRIPTOR_REQUEST_TAKE_RING = 1,  // reply carries: control memfd, slots memfd, to-client
                                     // eventfd, to-daemon eventfd
  DESCRIPTOR_REQUEST_OFFER = 2,      // request carries `count` descriptors of `kind`
  DESCRIPTOR_REQUEST_TAKE_PIN = 3,   // reply carries: the files of `pin` from bucket `first` on,
                                     // read-only, at most MOMENT_DESCRIPTORS_MAX
};

enum DescriptorKind {
  DESCRIPTOR_KIND_NONE = 0,
  DESCRIPTOR_KIND_PIDFD = 1,  // of the trainer, for liveness across PID namespaces
  DESCRIPTOR_KIND_FILE = 2,   // a regular file, for Load and Save
  DESCRIPTOR_KIND_VMM = 3,    // a CUDA VMM allocation
};

struct DescriptorRequest {
  uint64_t magic;
  uint32_t version;  // 1
  uint32_t request;  // DescriptorRequestKind
  uint32_t kind;     // DescriptorKind
  uint32_t count;
  uint8_t token[16];
  uint32_t first;  // bucket, in the order of PinResponse
  uint32_t zero;
  char pin[64]; /* padded with NUL */
};

struct DescriptorReply {
  uint64_t magic;
  uint32_t version;
  int32_t code;       // a google.rpc.Code; 0 is fine
  uint32_t first;     // number of the first accepted descriptor in this session
  uint32_t count;     // descriptors in this message, or accepted
  char message[232];  // what is wrong, NUL-terminated
};

#ifdef __cplusplus
}  // namespace moment::v1
#endif
