#include "replica/formats/compare.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>

#include "callbacks/state/key.h"
#include "kernels/host_cast.h"
#include "replica/formats/block_hasher.h"
#include "replica/formats/convert.h"
#include "replica/formats/torch/state_dict.h"
#include "replica/formats/values.h"
#include "replica/formats/window_plan.h"
#include "runtime/base/check.h"

namespace kintsugi::formats {
namespace {

constexpr uint64_t kCompareWindowBytes = 4 << 20;
constexpr uint64_t kDropBytes = uint64_t{256} << 20;

std::string Describe(const CatalogTensor& tensor) {
  return std::string(DTypeName(tensor.dtype)) + " " + DescribeShape(tensor.shape);
}

// Numbers are compared as binary64; complex ones, and those that no cast knows, have no difference of one number.
bool IsNumber(DType dtype) {
  return IsFloat(dtype) || dtype == DType::kInt64 || dtype == DType::kInt32 || dtype == DType::kInt16 ||
         dtype == DType::kInt8 || dtype == DType::kUInt8 || dtype == DType::kBool || dtype == DType::kUInt16 ||
         dtype == DType::kUInt32 || dtype == DType::kUInt64;
}

template <typename T>
double NumberAs(const uint8_t* data) {
  T value;
  std::memcpy(&value, data, sizeof(T));
  return static_cast<double>(value);
}

double NumberAt(const uint8_t* data, DType dtype) {
  if (dtype == DType::kUInt16) return NumberAs<uint16_t>(data);
  if (dtype == DType::kUInt32) return NumberAs<uint32_t>(data);
  if (dtype == DType::kUInt64) return NumberAs<uint64_t>(data);
  double value = 0;
  CastRegion(&value, ElementType::kFloat64, data, static_cast<ElementType>(dtype), {});
  return value;
}

std::string Text(const uint8_t* data, DType dtype) {
  if (IsNumber(dtype)) {
    char text[40];
    std::snprintf(text, sizeof(text), "%.9g", NumberAt(data, dtype));
    return text;
  }
  std::string hex = "0x";
  for (uint64_t i = DTypeSize(dtype); i-- > 0;) {
    char digits[4];
    std::snprintf(digits, sizeof(digits), "%02x", data[i]);
    hex += digits;
  }
  return hex;
}

void CompareWindow(const uint8_t* a, const uint8_t* b, const layout::Box& box, DType dtype, Difference* found) {
  const uint64_t size = DTypeSize(dtype);
  const int64_t elements = *Volume(box);
  for (int64_t i = 0; i < elements; ++i) {
    const uint8_t *x = a + static_cast<uint64_t>(i) * size, *y = b + static_cast<uint64_t>(i) * size;
    if (std::memcmp(x, y, size) == 0) continue;
    if (found->elements++ == 0) {
      const layout::Point at = layout::Unravel(box, i);
      found->first.assign(at.begin(), at.begin() + box.axes);
      found->left = Text(x, dtype);
      found->right = Text(y, dtype);
      if (IsNumber(dtype)) found->largest = 0;
    }
    if (!found->largest) continue;
    const double difference = std::abs(NumberAt(x, dtype) - NumberAt(y, dtype));
    if (std::isnan(difference))
      found->largest.reset();
    else
      found->largest = std::max(*found->largest, difference);
  }
}

// A catalog's tensors as wanted boxes, each whole.
std::vector<WantedBox> Whole(const Content& content) {
  std::vector<WantedBox> wanted;
  for (uint32_t i = 0; i < content.size(); ++i) wanted.push_back({i, layout::WholeBox(content[i].shape)});
  return wanted;
}

uint64_t BytesOf(const Content& content) {
  uint64_t bytes = 0;
  for (const CatalogTensor& tensor : content)
    bytes += static_cast<uint64_t>(*layout::Product(tensor.shape)) * DTypeSize(tensor.dtype);
  return bytes;
}

Status CompareTensors(const Catalog& left, const Catalog& right, const Content& both, const CompareOptions& options,
                      ComparedCatalogs* result) {
  const std::vector<WantedBox> wanted = Whole(both);
  KINTSUGI_ASSIGN_OR_RETURN(const auto a, WindowPlan::Make(both, wanted, left, nullptr, kCompareWindowBytes));
  KINTSUGI_ASSIGN_OR_RETURN(const auto b, WindowPlan::Make(both, wanted, right, nullptr, kCompareWindowBytes));
  KINTSUGI_CHECK(a->window_bytes_max() == b->window_bytes_max(), "windows of " + std::to_string(a->window_bytes_max()) +
                                                                     " and " + std::to_string(b->window_bytes_max()) +
                                                                     " bytes are compared");
  std::vector<uint8_t> x(a->window_bytes_max()), y(a->window_bytes_max());
  const uint64_t total = BytesOf(both);
  uint64_t since_drop = 0;
  for (uint32_t i = 0; i < both.size(); ++i) {
    Difference found;
    found.key = both[i].key;
    for (uint32_t w = a->first_window(i); w < a->end_window(i); ++w) {
      const uint64_t size = a->BytesOf(w);
      KINTSUGI_CHECK(size == b->BytesOf(w), "window " + std::to_string(w) + " of '" + found.key + "' has " +
                                                std::to_string(size) + " and " + std::to_string(b->BytesOf(w)) +
                                                " bytes");
      if (size == 0) continue;
      KINTSUGI_ASSIGN_OR_RETURN(const uint8_t* const p, a->Fill(w, x));
      KINTSUGI_ASSIGN_OR_RETURN(const uint8_t* const q, b->Fill(w, y));
      if (std::memcmp(p, q, size) != 0) CompareWindow(p, q, a->BoxOf(w), both[i].dtype, &found);
      result->bytes += size;
      if ((since_drop += size) > kDropBytes) {
        left.DropPages();
        right.DropPages();
        since_drop = 0;
      }
      if (options.progress) options.progress(result->bytes, total);
    }
    if (found.elements > 0) result->differences.push_back(std::move(found));
    ++result->tensors;
  }
  KINTSUGI_CHECK(result->bytes == total,
                 std::to_string(result->bytes) + " bytes were compared of " + std::to_string(total));
  return Status::Ok();
}

// One value has one text, whichever form a format keeps it in: a trainer's bytes, or a pickle of the safe subset. What
// is neither is compared as it lies there.
std::string CanonicalOf(const CatalogObject& object) {
  if (auto bytes = BytesOf(object); bytes.ok()) return "bytes " + *bytes;
  pickle::PickleWriter writer;
  if (torch::WriteObject(object, &writer).ok()) return "pickle " + writer.Finish();
  return std::string(FormName(object.form)) + " " + object.data;
}

bool AreEqual(const CatalogObject& left, const CatalogObject& right) {
  return (left.form == right.form && left.data == right.data) || CanonicalOf(left) == CanonicalOf(right);
}

void CompareObjects(const Catalog& left, const Catalog& right, const CompareOptions& options,
                    ComparedCatalogs* result) {
  const std::vector<CatalogObject> lefts = NamedAlike(left.objects()), rights = NamedAlike(right.objects());
  std::map<std::string, const CatalogObject*> others;
  for (const CatalogObject& object : rights)
    if (IsWanted(options.only, object.key)) others[object.key] = &object;
  const auto describe = [](const CatalogObject& object) {
    return std::string(FormName(object.form)) + " of " + std::to_string(object.data.size()) + " bytes";
  };
  for (const CatalogObject& object : lefts) {
    if (!IsWanted(options.only, object.key)) continue;
    const auto found = others.find(object.key);
    if (found == others.end()) {
      result->differences.push_back({Difference::Kind::kOnlyLeft, object.key, describe(object), "", {}, 0, {}});
      continue;
    }
    ++result->objects;
    if (!AreEqual(object, *found->second))
      result->differences.push_back(
          {Difference::Kind::kObject, object.key, describe(object), describe(*found->second), {}, 0, {}});
    others.erase(found);
  }
  for (const auto& [key, object] : others)
    result->differences.push_back({Difference::Kind::kOnlyRight, key, "", describe(*object), {}, 0, {}});
}

}  // namespace

std::string_view KindName(Difference::Kind kind) {
  switch (kind) {
    case Difference::Kind::kOnlyLeft:
      return "only_left";
    case Difference::Kind::kOnlyRight:
      return "only_right";
    case Difference::Kind::kDType:
      return "dtype";
    case Difference::Kind::kShape:
      return "shape";
    case Difference::Kind::kValues:
      return "values";
    case Difference::Kind::kObject:
      return "object";
  }
  return "unknown";
}

Result<ComparedCatalogs> Compare(const Catalog& left, const Catalog& right, const CompareOptions& options) {
  ComparedCatalogs result;
  std::map<std::string, const CatalogTensor*> others;
  for (const CatalogTensor& tensor : right.tensors())
    if (IsWanted(options.only, tensor.key)) others[tensor.key] = &tensor;
  Content both;
  for (const CatalogTensor& tensor : left.tensors()) {
    if (!IsWanted(options.only, tensor.key)) continue;
    const auto found = others.find(tensor.key);
    if (found == others.end()) {
      result.differences.push_back({Difference::Kind::kOnlyLeft, tensor.key, Describe(tensor), "", {}, 0, {}});
      continue;
    }
    const CatalogTensor& other = *found->second;
    if (other.shape != tensor.shape || other.dtype != tensor.dtype)
      result.differences.push_back({other.shape != tensor.shape ? Difference::Kind::kShape : Difference::Kind::kDType,
                                    tensor.key,
                                    Describe(tensor),
                                    Describe(other),
                                    {},
                                    0,
                                    {}});
    else if (const auto sum = left.SumOf(tensor); options.trust_sums && sum && sum == right.SumOf(other))
      ++result.tensors, ++result.by_sums;
    else
      both.push_back(tensor);
    others.erase(found);
  }
  for (const auto& [key, tensor] : others)
    result.differences.push_back({Difference::Kind::kOnlyRight, key, "", Describe(*tensor), {}, 0, {}});
  CompareObjects(left, right, options, &result);
  KINTSUGI_RETURN_IF_ERROR(CompareTensors(left, right, both, options, &result));
  return result;
}

Result<std::optional<Difference>> CompareWithin(const Catalog& catalog, const std::string& left,
                                                const std::string& right) {
  const auto find = [&](const std::string& key) {
    return std::find_if(catalog.tensors().begin(), catalog.tensors().end(),
                        [&](const CatalogTensor& tensor) { return tensor.key == key; });
  };
  const auto a = find(left), b = find(right);
  if (a == catalog.tensors().end() || b == catalog.tensors().end())
    return Status(StatusCode::kNotFound, "'" + catalog.path() + "' has no '" +
                                             PrintableKey(a == catalog.tensors().end() ? left : right) + "'");
  if (a->alias_of == b->key || b->alias_of == a->key || (!a->alias_of.empty() && a->alias_of == b->alias_of))
    return std::optional<Difference>();
  Difference found;
  found.key = left;
  found.left = Describe(*a);
  found.right = Describe(*b);
  if (a->shape != b->shape || a->dtype != b->dtype) {
    found.kind = a->shape != b->shape ? Difference::Kind::kShape : Difference::Kind::kDType;
    return std::optional(found);
  }
  const Content one = {*a}, other = {*b};
  KINTSUGI_ASSIGN_OR_RETURN(const auto x, WindowPlan::Make(one, Whole(one), catalog, nullptr, kCompareWindowBytes));
  KINTSUGI_ASSIGN_OR_RETURN(const auto y, WindowPlan::Make(other, Whole(other), catalog, nullptr, kCompareWindowBytes));
  std::vector<uint8_t> left_bytes(x->window_bytes_max()), right_bytes(y->window_bytes_max());
  for (uint32_t w = x->first_window(0); w < x->end_window(0); ++w) {
    const uint64_t size = x->BytesOf(w);
    KINTSUGI_CHECK(size == y->BytesOf(w), "window " + std::to_string(w) + " of '" + left + "' has " +
                                              std::to_string(size) + " bytes, of '" + right + "' " +
                                              std::to_string(y->BytesOf(w)));
    if (size == 0) continue;
    KINTSUGI_ASSIGN_OR_RETURN(const uint8_t* const p, x->Fill(w, left_bytes));
    KINTSUGI_ASSIGN_OR_RETURN(const uint8_t* const q, y->Fill(w, right_bytes));
    if (std::memcmp(p, q, size) != 0) CompareWindow(p, q, x->BoxOf(w), a->dtype, &found);
    catalog.DropPages();
  }
  if (found.elements == 0) return std::optional<Difference>();
  return std::optional(found);
}

Result<std::map<std::string, uint64_t>> LogicalDigests(const Catalog& catalog,
                                                       const std::function<void(uint64_t, uint64_t)>& progress) {
  const Content& content = catalog.tensors();
  const std::vector<WantedBox> wanted = Whole(content);
  KINTSUGI_ASSIGN_OR_RETURN(const auto plan, WindowPlan::Make(content, wanted, catalog, nullptr, kCompareWindowBytes));
  std::vector<uint8_t> buffer(plan->window_bytes_max());
  std::map<std::string, uint64_t> digests;
  uint64_t done = 0, since_drop = 0;
  const uint64_t total = BytesOf(content);
  for (uint32_t i = 0; i < content.size(); ++i) {
    BlockHasher hasher;
    for (uint32_t w = plan->first_window(i); w < plan->end_window(i); ++w) {
      const uint64_t size = plan->BytesOf(w);
      if (size == 0) continue;
      KINTSUGI_ASSIGN_OR_RETURN(const uint8_t* const data, plan->Fill(w, buffer));
      hasher.Update({data, size});
      done += size;
      if ((since_drop += size) > kDropBytes) {
        catalog.DropPages();
        since_drop = 0;
      }
      if (progress) progress(done, total);
    }
    const std::string head = content[i].key + '\0' + Describe(content[i]);
    const uint64_t parts[] = {HashBytes(head.data(), head.size()), checkpoint::DigestOf(hasher.Finish())};
    digests[content[i].key] = HashBytes(parts, sizeof(parts));
  }
  KINTSUGI_CHECK(done == total && digests.size() == content.size(),
                 "digests of " + std::to_string(digests.size()) + " tensors of " + std::to_string(done) +
                     " bytes, of " + std::to_string(content.size()) + " and " + std::to_string(total));
  return digests;
}

}  // namespace kintsugi::formats
