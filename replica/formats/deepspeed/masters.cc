#include "replica/formats/deepspeed/masters.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "callbacks/state/key.h"
#include "kernels/host_cast.h"
#include "replica/formats/deepspeed/names.h"
#include "replica/layout/element_types.h"
#include "runtime/base/check.h"

namespace kintsugi::formats::deepspeed {
namespace {

constexpr int64_t kSamples = 4;  // at either end of a piece

// The elements of a piece, in row-major order of its box.
FlatRange ElementsOf(const CatalogPiece& piece) {
  return piece.flat.value_or(FlatRange{0, layout::Product(piece.shape).value_or(0)});
}

// Where in the tensor element `at` of a piece's box is.
Shape PlaceOf(const CatalogPiece& piece, int64_t at) {
  Shape place(piece.shape.size());
  for (size_t axis = place.size(); axis-- > 0;) {
    place[axis] = piece.offset[axis] + at % piece.shape[axis];
    at /= piece.shape[axis];
  }
  return place;
}

class Elements {
 public:
  explicit Elements(const Catalog& catalog) : catalog_(catalog), pieces_(catalog.tensors().size()) {
    for (uint32_t i = 0; i < catalog.pieces().size(); ++i) pieces_[catalog.pieces()[i].tensor].push_back(i);
  }

  const std::vector<uint32_t>& PiecesOf(uint32_t tensor) const { return pieces_[tensor]; }

  // Null where no piece has it.
  const uint8_t* Find(uint32_t tensor, const Shape& place) const {
    for (const uint32_t number : pieces_[tensor])
      if (const uint8_t* const found = FindIn(catalog_.pieces()[number], place)) return found;
    return nullptr;
  }

  // The same in one piece.
  const uint8_t* FindIn(const CatalogPiece& piece, const Shape& place) const {
    int64_t at = 0, strided = 0;
    for (size_t axis = 0; axis < place.size(); ++axis) {
      const int64_t within = place[axis] - piece.offset[axis];
      if (within < 0 || within >= piece.shape[axis]) return nullptr;
      at = at * piece.shape[axis] + within;
      if (!piece.strides.empty()) strided += within * piece.strides[axis];
    }
    const FlatRange own = ElementsOf(piece);
    if (at < own.start || at >= own.stop) return nullptr;
    const int64_t element = piece.strides.empty() ? at - own.start : strided;
    const auto size = static_cast<int64_t>(DTypeSize(catalog_.tensors()[piece.tensor].dtype));
    KINTSUGI_CHECK(element >= 0 && static_cast<uint64_t>((element + 1) * size) <= piece.bytes,
                   "element " + std::to_string(element) + " of '" + catalog_.tensors()[piece.tensor].key +
                       "' in a piece of " + std::to_string(piece.bytes) + " bytes");
    return catalog_.files()[piece.file]->bytes().data() + piece.at + element * size;
  }

 private:
  const Catalog& catalog_;
  std::vector<std::vector<uint32_t>> pieces_;
};

void Cast(void* to, DType to_type, const void* from, DType from_type) {
  CastRegion(to, layout::ElementTypeOf(to_type), from, layout::ElementTypeOf(from_type), RegionPair{});
}

double ValueOf(const void* from, DType type) {
  double value = 0;
  Cast(&value, DType::kFloat64, from, type);
  return value;
}

}  // namespace

Status CheckMasters(const Catalog& catalog, const ReadOptions& options) {
  std::map<std::string, uint32_t> modules;
  for (uint32_t i = 0; i < catalog.tensors().size(); ++i)
    if (const auto name = ModuleOf(catalog.tensors()[i].path, catalog.tensors()[i].key)) modules.emplace(*name, i);
  const Elements elements(catalog);
  for (uint32_t i = 0; i < catalog.tensors().size(); ++i) {
    const CatalogTensor& master = catalog.tensors()[i];
    const auto state = StateOf(master.path, master.key);
    if (!state || state->state != kMaster) continue;
    const auto found = modules.find(state->parameter);
    if (found == modules.end()) continue;
    const CatalogTensor& module = catalog.tensors()[found->second];
    if (!IsWanted(options.only, master.key) || !IsWanted(options.only, module.key)) continue;
    const auto differ = [&](const std::string& what) {
      return Status(StatusCode::kDataLoss, "'" + catalog.path() + "': '" + PrintableKey(master.key) + "' and '" +
                                               PrintableKey(module.key) + "' should be one parameter, but " + what +
                                               ": use another checkpoint, or one of the two alone (--only '" +
                                               std::string(kModule) + ".*')");
    };
    Shape shape = module.shape;
    // In Universal a vocabulary has lost the padding that it has in the module.
    if (catalog.format() == "deepspeed-universal" && !shape.empty() && !master.shape.empty())
      shape[0] = std::min(shape[0], master.shape[0]);
    if (shape != master.shape)
      return differ("have the shapes " + DescribeShape(master.shape) + " and " + DescribeShape(module.shape));
    if (!IsCastable(layout::ElementTypeOf(master.dtype), layout::ElementTypeOf(module.dtype)) ||
        !IsCastable(layout::ElementTypeOf(module.dtype), ElementType::kFloat64))
      continue;
    for (const uint32_t number : elements.PiecesOf(i)) {
      const CatalogPiece& piece = catalog.pieces()[number];
      const FlatRange own = ElementsOf(piece);
      for (int64_t at = own.start; at < own.stop; ++at) {
        if (at == own.start + kSamples) at = std::max(at, own.stop - kSamples);
        const Shape place = PlaceOf(piece, at);
        const uint8_t* const exact = elements.FindIn(piece, place);
        const uint8_t* const stored = elements.Find(found->second, place);
        if (!exact || !stored) continue;
        uint8_t rounded[16] = {};
        Cast(rounded, module.dtype, exact, master.dtype);
        const double wanted = ValueOf(rounded, module.dtype), is = ValueOf(stored, module.dtype);
        if (wanted == is || (std::isnan(wanted) && std::isnan(is))) continue;
        char values[96];
        std::snprintf(values, sizeof(values), " is %.9g, rounded %.9g, and %.9g", ValueOf(exact, master.dtype), wanted,
                      is);
        return differ("element " + DescribeShape(place) + values);
      }
    }
  }
  return Status::Ok();
}

}  // namespace kintsugi::formats::deepspeed
