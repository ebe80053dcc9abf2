//go:build !amd64

package search

func (p *patch) rowVector(offset, width int) bool { return false }
