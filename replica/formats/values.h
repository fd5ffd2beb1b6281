// A run's values (callbacks/state/values.h) as each format keeps numbers and texts, and back.
//
//   native        one object of a rank: all values of a registration, as its bytes
//   elsewhere     each value an object of its own, a scalar at the path that its name is: `args.iteration` is
//                 {"args": {"iteration": ..}} in torch's dictionaries, an attribute of `args` in Megatron's common.pt
//
// What a library calls a value of its own is found under our name too (Known).
// Errors: none: what is no value stays the object that it was, and a note says what is left out.
// Threads: pure.
#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "callbacks/state/values.h"
#include "replica/formats/catalog.h"

namespace kintsugi::formats {

// What another library calls a value that has a usual name here.
struct Known {
  std::string_view ours, theirs;
};
inline constexpr Known kKnownToMegatron[] = {{"consumed_samples", "args.consumed_train_samples"}};
inline constexpr Known kKnownToDeepSpeed[] = {{"consumed_samples", "global_samples"}};
// The objects of a checkpoint for that library: what it looks for under a name of its own is called so, whatever it was
// called before.
std::vector<CatalogObject> CalledAsKnown(std::span<const Known> known, const std::vector<CatalogObject>& objects);

// The attributes of a namespace of plain data (argparse.Namespace), each as an object; nothing for anything else.
std::vector<CatalogObject> AttributesOf(const CatalogObject& object);

// The scalar that an object is, whatever form it is kept in.
std::optional<Values::Value> ScalarOf(const CatalogObject& object);
CatalogObject ScalarObject(const std::string& name, const Values::Value& value);

// Values that ranks of a run saved become objects of their own: those of the first rank, since values are the same on
// all. Other objects stay.
std::vector<CatalogObject> OpenValues(const std::vector<CatalogObject>& objects, std::vector<std::string>* notes);
// The reverse, for a native checkpoint: all scalars become one registration's bytes, under `kValuesKey` where no other is called so.
std::vector<CatalogObject> CloseValues(const std::vector<CatalogObject>& objects);
inline constexpr std::string_view kValuesKey = "values";

// The same objects as two checkpoints of different formats can be compared by: values opened, namespaces too, under
// our names.
std::vector<CatalogObject> NamedAlike(const std::vector<CatalogObject>& objects);

// All scalars of a checkpoint, to be asked for by a run that goes on from it.
class KINTSUGI_EXPORT SavedValues {
 public:
  explicit SavedValues(const std::vector<CatalogObject>& objects);
  // Null where there is none.
  const Values::Value* Find(const std::string& name) const;
  // `wanted`, by name: each as the type that it has there; one that is none there may be missing. kFailedPrecondition
  // names what is missing, or of another type.
  Result<Values> Take(const Values& wanted) const;

 private:
  std::map<std::string, Values::Value> all_;
};

}  // namespace kintsugi::formats
