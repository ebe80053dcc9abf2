# Fetches the Go modules that the build, the tests and the tools need. If that fails, says why in one sentence.
execute_process(
  COMMAND ${GO_EXECUTABLE} list -deps -test ./engine/... ./bridge/... github.com/go-python/gopy golang.org/x/tools/cmd/goimports
  WORKING_DIRECTORY ${go_module} RESULT_VARIABLE failed OUTPUT_QUIET ERROR_VARIABLE go_said)
if(failed)
  execute_process(COMMAND ${GO_EXECUTABLE} env GOPROXY WORKING_DIRECTORY ${go_module} OUTPUT_VARIABLE go_proxy ERROR_QUIET OUTPUT_STRIP_TRAILING_WHITESPACE)
  string(REGEX REPLACE "//[^/@,]*@" "//" go_proxy "${go_proxy}") # no password in a log
  if(go_said MATCHES "x509:|certificate")
    set(why "The certificate of Go's module proxy (GOPROXY=${go_proxy}) is not trusted here: install ca-certificates, or name your own authority's file by SSL_CERT_FILE.")
  elseif(go_said MATCHES "dial tcp|lookup |connection refused|i/o timeout|no such host|proxyconnect|TLS handshake timeout|module lookup disabled")
    set(why "No Go module proxy could be reached (GOPROXY=${go_proxy}): connect this machine, or set GOPROXY or HTTPS_PROXY to what it can reach.")
  elseif(go_said MATCHES "no space left|disk quota")
    set(why "The disk of Go's module cache is full: make room, or set GOMODCACHE to a folder elsewhere.")
  elseif(go_said MATCHES "permission denied|read-only file system")
    set(why "Go's module cache cannot be written: set GOMODCACHE to a folder that can.")
  else()
    set(why "Go could not fetch its modules.")
  endif()
  string(REGEX REPLACE "go: downloading [^\n]*\n" "" go_said "${go_said}")
  string(REGEX MATCH "^[^\n]*" go_said "${go_said}")
  message(FATAL_ERROR "${why}\nGo said: ${go_said}\n")
endif()
