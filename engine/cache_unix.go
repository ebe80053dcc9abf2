//go:build unix

package engine

import (
	"fmt"
	"os"
	"syscall"
)

// openToStrangers says why a cache folder cannot be trusted, if so: who can write to it can leave there what is read as a result of ours.
// A group that shares one was let in by its owner.
func openToStrangers(dir string) string {
	info, err := os.Stat(dir)
	if err != nil {
		return "" // not there yet, or it says so when it is used
	}
	if info.Mode().Perm()&0o002 != 0 {
		return fmt.Sprintf("anybody can write to the folder %s; say chmod o-w, or choose another one", dir)
	}
	if own, ok := info.Sys().(*syscall.Stat_t); ok && own.Uid != 0 && os.Geteuid() != 0 && int(own.Uid) != os.Geteuid() {
		return fmt.Sprintf("the folder %s is another user's; choose another one", dir)
	}
	return ""
}
