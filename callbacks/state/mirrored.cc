#include "callbacks/state/mirrored.h"

#include <map>
#include <utility>

#include "callbacks/state/registry.h"

namespace kintsugi {

std::vector<uint8_t> JoinMirrored(const MirroredObjects& objects) {
  std::vector<uint8_t> bytes;
  for (const MirroredObject& object : objects) AppendMirrored(object.key, *object.bytes, &bytes);
  return bytes;
}

Result<MirroredObjects> SplitMirrored(const std::vector<uint8_t>& bytes) {
  KINTSUGI_ASSIGN_OR_RETURN(auto by_key, UnpackMirrored(bytes));
  MirroredObjects objects;
  for (auto& [key, of_key] : by_key)
    objects.push_back({key, std::make_shared<const std::vector<uint8_t>>(std::move(of_key))});
  return objects;
}

MirroredObjects ShareUnchanged(MirroredObjects objects, const MirroredObjects& before) {
  auto old = before.begin();
  for (MirroredObject& object : objects) {
    while (old != before.end() && old->key < object.key) ++old;
    if (old == before.end()) break;
    if (old->key == object.key && old->bytes != object.bytes && *old->bytes == *object.bytes) object.bytes = old->bytes;
  }
  return objects;
}

}  // namespace kintsugi
