// The formats that there are, one factory each (private to this folder).
#pragma once

#include "replica/formats/format.h"

namespace kintsugi::formats {

const Format& NativeFormat();
const Format& SafetensorsFormat();
const Format& TorchFormat();
const Format& TorchRanksFormat();
const Format& DcpFormat();
const Format& MegatronFormat();
const Format& MegatronLegacyFormat();
const Format& DeepSpeedFormat();
const Format& UniversalFormat();
const Format& PaddleFormat();

}  // namespace kintsugi::formats
