//go:build cgo

package testkit

const cgo = true
