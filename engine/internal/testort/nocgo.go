//go:build !cgo

package testort

const cgo = false
