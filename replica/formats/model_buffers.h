// ModelBuffers: the buffers of a model (BatchNorm's running statistics) as the tensors that they are for its library. A Python
// trainer keeps them in objects of the run ("model.buffers"), since each rank has its own.
//
// What: rank 0's, as DistributedDataParallel goes by them; those alone that the model's state_dict has.
// Errors: what cannot be told is a note: buffers that ranks have under one name and with other shapes (stages of a pipeline), or
// cut (DTensors), and objects of a version that did not say type and shape.
// Threads: none.
#pragma once

#include <string>
#include <vector>

#include "replica/formats/catalog.h"

namespace kintsugi::formats {

// Adds them to `catalog` as tensors called `prefix` and their own name; returns these names, without the prefix. A name that the
// catalog has already is left out. Before Catalog::Finish.
std::vector<std::string> AddModelBuffers(const Catalog& source, const std::string& prefix, Catalog* catalog);

}  // namespace kintsugi::formats
