// Mutual TLS on the control connections: the files, for launchers, the controller and the ranks.
#include <filesystem>

#include "tools/cli/common.h"

namespace kintsugi::cli {

void AddTlsOptions(CLI::App& app, net::TlsFiles& files) {
  app.add_option("--tls-cert", files.certificate,
                 "Mutual TLS 1.3 on all control connections: this host's certificate (PEM, then those between it and\n"
                 "the CA). Given together with --tls-key and --tls-ca, on every host")
      ->envname("KINTSUGI_TLS_CERT");
  app.add_option("--tls-key", files.key, "Its private key (PEM, without passphrase, not readable by everybody)")
      ->envname("KINTSUGI_TLS_KEY");
  app.add_option("--tls-ca", files.ca, "CA that has issued the certificates of all hosts (PEM)")
      ->envname("KINTSUGI_TLS_CA");
}

Status ApplyTlsOptions(const net::TlsFiles& files, LauncherOptions* launcher) {
  if (!files.any()) return Status::Ok();
  KINTSUGI_ASSIGN_OR_RETURN(launcher->tls, net::TlsContext::Load(files));
  launcher->tls->Follow();
  // Ranks may have another working directory.
  const auto name = [&](const char* variable, const std::string& path) {
    std::error_code error;
    launcher->environment[variable] = std::filesystem::absolute(path, error).string();
  };
  name("KINTSUGI_TLS_CERT", files.certificate);
  name("KINTSUGI_TLS_KEY", files.key);
  name("KINTSUGI_TLS_CA", files.ca);
  return Status::Ok();
}

}  // namespace kintsugi::cli
