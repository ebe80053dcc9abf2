package search

import (
	"github.com/morphseek/morphseek/engine/field"
	"github.com/morphseek/morphseek/engine/internal/aligned"
)

// MatchRounds is how often blocks are matched for a fit, each time from the last fit.
const MatchRounds = 2

// rounds are levels with wide windows on grids 2 and 1.5 times as coarse as Run's. In a torso blocks of 40 mm search 40 mm around, and blocks of
// 30 mm then 24 mm.
var rounds = [MatchRounds]struct {
	coarseness float64
	level      level
}{{2, level{5, 5, 1, 60}}, {1.5, level{5, 4, 1, 60}}}

// MatchBlocks returns where the blocks of the fixed volume match best, as a field on the round's control grid. It is neither smooth nor free of
// folds: it is for a fit to many blocks. For a volume too small for the round it is nil.
func MatchBlocks(pair aligned.Pair, round, threads int) *field.Field {
	l, grid := rounds[round].level, pair.Grid(rounds[round].coarseness*workingGrid(pair).Spacing[0])
	if !l.fits(grid) {
		return nil
	}
	im := pair.At(grid, l.reach(), aligned.ZeroEdge, threads)
	return newStep(l, im, describe(im.Fixed, im.FixedValid, nil, wide, threads), nil, wide, nil, l.reach(), threads).solve(1)
}
