#include "tools/cli/version.h"

#include <openssl/crypto.h>

#include "replica/formats/format.h"
#include "replica/layout/codec.h"
#include "runtime/journal/input.h"
#include "runtime/net/handshake.h"
#include "tools/cli/commit.h"

namespace kintsugi::cli {

std::string ShortVersion() {
  const std::string commit = KINTSUGI_COMMIT;
  return KINTSUGI_VERSION " (commit " + (commit.empty() ? std::string("unknown") : commit) + ")";
}

std::string VersionText() {
  std::string formats;
  for (const formats::Format* format : formats::AllFormats())
    formats += (formats.empty() ? "" : ", ") + std::string(format->name());
  return "kintsugi " + ShortVersion() + "\n" +
         "built by " KINTSUGI_COMPILER ", " KINTSUGI_BUILD_TYPE "; CUDA kernels " KINTSUGI_CUDA_KERNELS "; " +
         OpenSSL_version(OPENSSL_VERSION) + "\n" +  //
         "control protocol " + std::to_string(net::kProtocolVersion) + ", journal " +
         std::to_string(journal::kVersion) + ", layout metadata " + std::to_string(layout::kMetadataVersion) +
         "\ncheckpoints: " + formats;
}

}  // namespace kintsugi::cli
