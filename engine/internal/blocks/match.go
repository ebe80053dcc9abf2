package blocks

import (
	"github.com/morphseek/morphseek/engine/field"
	"github.com/morphseek/morphseek/engine/internal/aligned"
)

// Rounds is how often blocks are matched for a fit, each time from the last fit.
const Rounds = 2

// rounds are levels with wide windows on grids 2 and 1.5 times as coarse as WorkingGrid. In a torso blocks of 40 mm
// search 40 mm around, and blocks of 30 mm then 24 mm.
var rounds = [Rounds]struct {
	coarseness float64
	level      Level
}{{2, Level{5, 5, 1, 60}}, {1.5, Level{5, 4, 1, 60}}}

// Match returns where the blocks of the fixed volume match best, as a field on the round's control grid. It is neither
// smooth nor free of folds: it is for a fit to many blocks. For a volume too small for the round it is nil.
func Match(pair aligned.Pair, round, threads int) *field.Field {
	l, grid := rounds[round].level, pair.Grid(rounds[round].coarseness*WorkingGrid(pair).Spacing[0])
	if !l.Fits(grid) {
		return nil
	}
	return Between(l, pair.At(grid, l.Reach(), aligned.ZeroEdge, threads), threads).Solve(1, Blunt)
}

// Between returns the search at level l by structure alone.
func Between(l Level, im aligned.Images, threads int) *Step {
	room := &Room{}
	fixed := Describe(im.Fixed, im.FixedValid, nil, Wide, room, threads)
	return NewStep(l, im, fixed, Describe(im.Moving, im.MovingValid, nil, Wide, room, threads), nil, room, threads)
}
