//go:build !cgo && !windows

package network

// ownPath is unknown without cgo, and nothing is loaded then.
func ownPath() string { return "" }
