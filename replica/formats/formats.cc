#include "replica/formats/formats.h"

#include <array>

namespace kintsugi::formats {

std::span<const Format* const> AllFormats() {
  // In the order in which people are told of them: which one counts where two recognise a path says Format::refines.
  static const std::array kFormats = {&NativeFormat(),    &SafetensorsFormat(),    &TorchFormat(), &TorchRanksFormat(),
                                      &MegatronFormat(),  &MegatronLegacyFormat(), &DcpFormat(),   &DeepSpeedFormat(),
                                      &UniversalFormat(), &PaddleFormat()};
  return kFormats;
}

}  // namespace kintsugi::formats
