package volume

// Reversed returns v with an axis the other way round, on the same grid: what it shows is mirrored.
func (v *Volume) Reversed(axis int) *Volume {
	out := Zeros(v.Geometry)
	step, n := v.Strides()[axis], v.Size[axis]
	for i, x := range v.Data {
		out.Data[i+(n-1-2*(i/step%n))*step] = x
	}
	return out
}
