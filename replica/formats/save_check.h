// CheckSaveProgram: whether the AOA program of a run's saves in other formats can be built of what its ranks have registered,
// so that a name which is not there is told before the first step and not by the first save.
//
// What: the engine that SaveAs builds, of the tensors that its native checkpoint will have.
// Errors: kInvalidArgument names statement, column and tensor, or says that no tensor of a model is registered.
// Threads: pure.
#pragma once

#include "replica/formats/save_as.h"
#include "replica/layout/metadata.h"

namespace kintsugi::formats {

// `registered`: of all ranks, put together, with the further names of tensors as tensors of their own.
KINTSUGI_EXPORT Status CheckSaveProgram(const layout::Metadata& registered, const SaveAsOptions& options);

}  // namespace kintsugi::formats
