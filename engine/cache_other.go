//go:build !unix

package engine

// openToStrangers says why a cache folder cannot be trusted. Windows keeps a user's folders to the user.
func openToStrangers(string) string { return "" }
