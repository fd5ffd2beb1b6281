// The .distcp files of Paddle: one pickle of a dictionary of NumPy arrays, their bytes within it.
//
// What: reading finds each array's shape and where its bytes lie, and touches none of them; writing lays the pickle out
// around the bytes. bfloat16 stands as uint16: the metadata knows better.
// Errors: kDataLoss names file, byte and key.
// Threads: pure. Source: python/paddle/framework/io.py (3.3.1), numpy's ndarray.__reduce__.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "replica/formats/format.h"

namespace kintsugi::formats::paddle {

struct Array {
  Shape shape;
  uint64_t element_bytes = 0;
  uint64_t at = 0, bytes = 0;  // of the file
  bool is_fortran = false;     // column-major
};
struct Arrays {
  std::map<std::string, Array> arrays;
  std::vector<CatalogObject> objects;  // of ours; what stands beside one under its name is not among the arrays
};
Result<Arrays> ReadArrays(std::string_view text, const std::string& place);

// A number or flag among the objects, as Paddle's loader takes it: a tensor without axes.
struct ScalarArray {
  std::string key;
  Path path;
  DType dtype = DType::kInt64;
  std::string bytes;
};
std::vector<ScalarArray> ScalarsOf(const std::vector<CatalogObject>& objects);

struct LaidTensor {
  uint32_t number = 0;  // in the content
  layout::Box box;
};
// Objects are texts of ours in arrays of bytes, from which they are read again; beside them stand scalars, as arrays,
// under their own names, for Paddle's readers. kInvalidArgument: a type that NumPy and Paddle have no common name for.
Status LayArrays(const Content& content, const std::vector<LaidTensor>& tensors,
                 const std::vector<CatalogObject>& objects, OutlineFile* file);

}  // namespace kintsugi::formats::paddle
