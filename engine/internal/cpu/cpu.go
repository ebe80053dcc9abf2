// Package cpu says what the processor offers to the assembly of this module, and lets tests do without.
//
// Assembly gives the bits of the Go loop that it stands for, so no result depends on the processor. For that a product is rounded
// before it is added: float32(x*y) + z. Without the conversion Go fuses the two on arm64, and on amd64 from GOAMD64=v3 on.
package cpu
