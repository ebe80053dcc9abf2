//go:build unix

package engine

import (
	"fmt"
	"os"
	"syscall"
)

// openToStrangers says why a cache folder cannot be trusted: whoever can write to it could plant a false result. A
// group that shares the folder has its owner's permission.
func openToStrangers(dir string) string {
	info, err := os.Stat(dir)
	if err != nil {
		return "" // it does not exist yet, or its use will report the error
	}
	if info.Mode().Perm()&0o002 != 0 {
		return fmt.Sprintf("anybody can write to the folder %s; say chmod o-w, or choose another one", dir)
	}
	if own, ok := info.Sys().(*syscall.Stat_t); ok && own.Uid != 0 && os.Geteuid() != 0 && int(own.Uid) != os.Geteuid() {
		return fmt.Sprintf("the folder %s is another user's; choose another one", dir)
	}
	return ""
}
