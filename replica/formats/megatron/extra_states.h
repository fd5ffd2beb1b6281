// Extra states of Megatron's modules (torch's get_extra_state): objects, cell by cell of a grid of layers and experts. Most are None,
// and its loader asks for each nevertheless.
//
// Errors: none; what is of another form is left alone.
// Threads: pure. Source: megatron/core/transformer/utils.py, make_sharded_object_for_checkpoint (0.16.1).
#pragma once

#include <vector>

#include "replica/formats/format.h"

namespace kintsugi::formats::megatron {

// Cells that are None, which a run of kintsugi.megatron names ("megatron.rank").
std::vector<CatalogObject> EmptyCellsOfRun(const std::vector<CatalogObject>& objects);

// Cells that are None of each linear layer among the tensors, and of each layer's attention, which TransformerEngine asks for. Those of
// modules that have one among the objects are not made.
std::vector<CatalogObject> EmptyCellsOfLayers(const Content& content, const std::vector<CatalogObject>& objects);

}  // namespace kintsugi::formats::megatron
