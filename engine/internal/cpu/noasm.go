//go:build !amd64 || noasm

package cpu

func detect() features { return features{} }
