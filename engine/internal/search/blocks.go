package search

import (
	"github.com/morphseek/morphseek/engine/field"
	"github.com/morphseek/morphseek/engine/internal/aligned"
)

// MatchRounds are how often blocks are matched for a fit, each time from where the last fit led.
const MatchRounds = 2

// rounds are wide levels, first on a grid twice as coarse as Run's: blocks of 40 mm of a torso look 40 mm about, then blocks of 30 mm
// 24 mm.
var rounds = [MatchRounds]struct {
	coarseness float64
	level      level
}{{2, level{5, 5, 1, 60}}, {1.5, level{5, 4, 1, 60}}}

// MatchBlocks returns where the blocks of the fixed volume match best, as a field on the round's control grid: neither smooth nor free of
// folds, for a fit over many of them. It returns nil for a crop too small for that round.
func MatchBlocks(pair aligned.Pair, round, threads int) *field.Field {
	l, grid := rounds[round].level, pair.Grid(rounds[round].coarseness*workingGrid(pair).Spacing[0])
	if !l.fits(grid) {
		return nil
	}
	im := pair.At(grid, l.reach(), aligned.ZeroEdge, threads)
	return newStep(l, im, describe(im.Fixed, im.FixedValid, nil, wide, threads), nil, wide, nil, l.reach(), threads).solve(1)
}
