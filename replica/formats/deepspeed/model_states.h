// The model's half of a DeepSpeed checkpoint: *_model_states.pt, read and written. Both ZeRO and Universal have it.
//
// What: read, it tells what the optimizer's files do not: the names and shapes of the parameters, in the order of
// the flat groups, and how model-parallel ranks cut them. Written, it is rank 0's file of a run with one model-parallel
// rank; of stage 3 one for each data-parallel rank, which has buffers whole, its part of what no optimizer has, and
// placeholders of no element where parameters were.
// Errors: kDataLoss and kInvalidArgument name file, byte and parameter.
// Threads: pure.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "replica/formats/deepspeed/names.h"
#include "replica/formats/deepspeed/slices.h"
#include "replica/formats/torch/lay.h"

namespace kintsugi::formats::deepspeed {

// A file that is open: its number in the catalog, and what its pickle says.
struct OpenFile {
  uint32_t number = 0;
  torch::Archive archive;
};
Result<OpenFile> Open(Catalog* catalog, const std::string& folder, const std::string& name);

// Elements [start, stop) of a slice of `tensor`, which lie from byte `at` on.
struct SliceRange {
  uint32_t tensor = 0;
  uint32_t file = 0;
  int64_t start = 0, stop = 0;
  uint64_t at = 0;
};
void AddRange(Catalog* catalog, const std::vector<SlicePart>& parts, const SliceRange& range);

struct Parameter {
  std::string name;
  Slices slices;
};
struct ModelStates {
  std::vector<std::vector<Parameter>> groups;  // as the optimizer has them, in the order of its flat buffers
  int data_ranks = 1;                          // of stage 3, where each has a file
  int model_ranks = 1;
  bool is_cut = false;           // stage 3: parameters are no part of the module
  bool has_round_robin = false;  // round_robin_gradients: param_slice_mappings are of another order than the buffers
  std::vector<std::pair<std::string, std::string>> shared;  // tied parameters: a name, and whose weights it has
};
void AddShared(Catalog* catalog, const ModelStates& states);
// Adds "module.*" and every object, of the files named so. `names`: all files of the folder.
Result<ModelStates> AddModelStates(Catalog* catalog, const std::string& folder, const std::vector<std::string>& names,
                                   const ReadOptions& options);

// What is to be written, told apart by its names.
struct Sorted {
  struct Tensor {
    uint32_t number = 0;  // in the content
    std::string name;
  };
  std::vector<Tensor> module, others;
  std::map<std::string, uint32_t> copies;  // what the module alone has, as fp32 (Format::CopiesOf)
  std::vector<std::pair<Tensor, uint32_t>>
      shared;  // the module's other names of tied weights, and whose bytes they are
  std::map<std::string, std::map<std::string, uint32_t>> states;              // parameter -> state -> number
  std::map<std::string, std::map<std::string, const CatalogObject*>> values;  // the same of states that are objects
  std::vector<std::vector<std::string>> groups;                               // parameters that have states
  std::vector<const CatalogObject*> optimizer, objects;
};
Result<Sorted> Sort(const Content& content, const std::vector<CatalogObject>& objects);

// mp_rank_00_model_states.pt in `folder`; with a data-parallel rank that one's of stage 3.
Result<OutlineFile> LayModelStates(const Content& content, const Sorted& sorted, const LayOptions& options,
                                   const std::string& folder, std::optional<int> data_rank = std::nullopt);

using Storage = torch::LaidStorage;
Storage StorageOf(const Content& content, uint32_t number);
// Appends elements of tensor `number`, counted row-major, and `zeros` elements behind them.
void AppendRange(const Content& content, uint32_t number, FlatRange range, int64_t zeros, Storage* storage);
torch::Leaf ObjectLeaf(Path path, const CatalogObject* object);
// Of one of Sorted::optimizer.
Path PathInOptimizer(const CatalogObject& object);

}  // namespace kintsugi::formats::deepspeed
