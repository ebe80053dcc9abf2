package engine

import (
	"github.com/morphseek/morphseek/engine/fault"
	"github.com/morphseek/morphseek/engine/field"
	"github.com/morphseek/morphseek/engine/volume"
)

// Halfway returns the maps from the space half-way between the images to the fixed and to the moving space. Its grid
// has the fixed image's voxels, turned and shifted half the way. With A the initial transform, S S = A and M the whole
// map, the point x of the fixed space lies there at (S x + S^(-1) M(x)) / 2: the same place as seen from the other
// image, whose S is S^(-1) and whose map is M^(-1).
func (t *Transform) Halfway() (toFixed, toMoving *Transform, err error) {
	defer fault.Recovered(&err)
	half, err := t.Initial.Root()
	if err != nil {
		return nil, nil, fault.Wrap(fault.SingularTransform, err, "there is no space half-way: the initial transform turns by half a turn, or mirrors")
	}
	undo, err := half.Inverse()
	if err != nil {
		return nil, nil, err
	}
	whole, err := t.Field.Endless(t.Initial)
	if err != nil {
		return nil, nil, err
	}
	g := t.Field.Geometry
	from, to := field.FromAffine(g, half), field.New(g)
	toMM, toIndex := g.IndexToPhysical(), g.PhysicalToIndex()
	for i := range from.X {
		x, u, there := g.Point(i), from.Vector(i), toIndex.Apply(undo.Apply(toMM.Apply(t.Field.Target(i))))
		to.X[i] = float32((u[0] + there[0] - x[0]) / 2)
		to.Y[i] = float32((u[1] + there[1] - x[1]) / 2)
		to.Z[i] = float32((u[2] + there[2] - x[2]) / 2)
	}
	between, err := to.Endless(half)
	if err != nil {
		return nil, nil, err
	}
	middle := g
	middle.Direction = volume.Affine{M: volume.NearestRotation(half.M)}.After(volume.Affine{M: g.Direction}).M
	middle = middle.CenteredAt(half.Apply(g.Center()))
	back, _ := between.Inverse(middle, t.Threads)
	toFixed = &Transform{Field: back, Initial: undo, Moving: g, Threads: t.Threads}
	toMoving = &Transform{Field: whole.After(back, t.Threads), Initial: t.Initial.After(undo), Moving: t.Moving, Threads: t.Threads}
	return toFixed, toMoving, nil
}
