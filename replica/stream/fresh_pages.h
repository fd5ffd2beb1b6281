// Pages of a receive's target that nobody has touched yet, as in a process that has just started: the kernel fills them in
// faster when it is asked for a range than at one fault after the other.
//
// Threads: any.
// Units: bytes.
#pragma once

#include <cstdint>

namespace kintsugi {

// Looks at the last page of [data, data + size_bytes), which is about to be written whole; where it is not there, asks for all
// of them. Only a hint: kernels before 5.14 do not know it and fault page by page. Meant for pieces of about 1 MiB.
void FillFreshPages(void* data, uint64_t size_bytes);

}  // namespace kintsugi
