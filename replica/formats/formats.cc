#include "replica/formats/formats.h"

#include <array>

namespace kintsugi::formats {

std::span<const Format* const> AllFormats() {
  // In the order in which they are looked for: Megatron's folder is a DCP folder too.
  static const std::array kFormats = {&NativeFormat(),    &SafetensorsFormat(),    &TorchFormat(),
                                      &MegatronFormat(),  &MegatronLegacyFormat(), &DcpFormat(),
                                      &DeepSpeedFormat(), &UniversalFormat(),      &PaddleFormat()};
  return kFormats;
}

}  // namespace kintsugi::formats
