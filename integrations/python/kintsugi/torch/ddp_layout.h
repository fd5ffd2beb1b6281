// What a reducer of torch's DistributedDataParallel learns while it trains, read and put back.
//
// Gradients are added up bucket by bucket, so which parameter lies in which bucket decides how sums are rounded. A reducer
// lays its buckets out anew after its first backward pass, in the order in which gradients were ready; with a static graph
// it also learns then which parameters are used, and how often. A rank that begins later has not seen that pass: it is
// told what the others learnt.
// Threads: the trainer's, between two passes.
// Errors: std::invalid_argument where a layout is not one of the reducer's parameters.
#pragma once

#include <cstdint>
#include <torch/csrc/distributed/c10d/reducer.hpp>
#include <vector>

namespace kintsugi::torch_door {

struct DdpLayout {
  std::vector<std::vector<size_t>> buckets;  // indices of parameters
  bool is_rebuilt = false;                   // for good
  std::vector<int64_t> ready;  // the order in which the next forward pass lays the buckets out, once it is known
  // Of a static graph, else empty.
  int64_t passes = 0;           // backward passes begun: the first counts, the second is counted upon
  std::vector<int64_t> hooked;  // by parameter: how often a pass calls its hook
  std::vector<size_t> unused;
  std::vector<int64_t> used;  // by parameter: on how many ranks it is
  bool is_used_known = false;

  bool operator==(const DdpLayout&) const = default;
};

DdpLayout LayoutOf(c10d::Reducer& reducer);
// Of the pass that broke, if there was one, nothing is left.
void LayOut(c10d::Reducer& reducer, const DdpLayout& layout);

}  // namespace kintsugi::torch_door
