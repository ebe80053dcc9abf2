package network

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
)

// Sample fills epsilon, [J, N] row by row, for one step: row 0 is zero, so that the mean mu is always among the
// candidates; row j > 0 holds independent standard normal values that depend on (seed, step, j) alone. They are the
// same bits on every platform: the uniforms come from ChaCha8, the normal quantiles from arithmetic that no compiler
// may fuse or reorder.
func Sample(epsilon []float32, trajectories int, seed uint64, step int) {
	n := len(epsilon) / trajectories
	clear(epsilon[:n])
	for j := 1; j < trajectories; j++ {
		Draw(epsilon[j*n:(j+1)*n], seed, step, j)
	}
}

// Draw fills row with what Sample gives trajectory j > 0.
func Draw(row []float32, seed uint64, step, j int) {
	var key [32]byte
	copy(key[:], "morphseek epsilon")
	binary.LittleEndian.PutUint64(key[17:], seed)
	key[25] = byte(step)
	binary.LittleEndian.PutUint32(key[26:], uint32(j))
	source := rand.NewChaCha8(key)
	for i := range row {
		// The centre of one of 2^52 cells of (0, 1): exact in a float64, and never 0 or 1.
		u := (float64(source.Uint64()>>12) + 0.5) / (1 << 52)
		row[i] = float32(quantile(u))
	}
}

// quantile returns the inverse of the standard normal distribution function at p in (0, 1), to about 16 digits: Wichura's
// algorithm AS 241 (PPND16), Applied Statistics 37 (1988) 477-484.
func quantile(p float64) float64 {
	q := p - 0.5
	if math.Abs(q) <= 0.425 {
		r := 0.180625 - float64(q*q)
		return q * (horner(r, &centreNumerator) / horner(r, &centreDenominator))
	}
	tail := min(p, 1-p)
	r := math.Sqrt(-ln(tail))
	var x float64
	if r <= 5 {
		x = horner(r-1.6, &tailNumerator) / horner(r-1.6, &tailDenominator)
	} else {
		x = horner(r-5, &farNumerator) / horner(r-5, &farDenominator)
	}
	if q < 0 {
		return -x
	}
	return x
}

// horner evaluates the polynomial with coefficients c, the highest power first.
func horner(x float64, c *[8]float64) float64 {
	y := c[0]
	for _, k := range c[1:] {
		y = float64(y*x) + k
	}
	return y
}

// ln returns the natural logarithm of a positive normal number, to about 16 digits. math.Log is in assembly on some
// platforms and so differs in the last bit. x = m 2^e with m in [sqrt(1/2), sqrt(2)), log m = 2 artanh((m-1)/(m+1)).
func ln(x float64) float64 {
	m, e := math.Frexp(x)
	if m < math.Sqrt2/2 {
		m, e = 2*m, e-1
	}
	s := (m - 1) / (m + 1)
	s2 := float64(s * s)
	series := 0.0
	for k := 23; k >= 1; k -= 2 { // |s| < 0.1716: the first term left out is below 1e-19
		series = float64(series*s2) + 1/float64(k)
	}
	return float64(float64(2*s)*series) + float64(float64(e)*math.Ln2)
}

// Coefficients of AS 241, the highest power first.
var (
	centreNumerator = [8]float64{2.5090809287301226727e3, 3.3430575583588128105e4, 6.7265770927008700853e4, 4.5921953931549871457e4,
		1.3731693765509461125e4, 1.9715909503065514427e3, 1.3314166789178437745e2, 3.3871328727963666080e0}
	centreDenominator = [8]float64{5.2264952788528545610e3, 2.8729085735721942674e4, 3.9307895800092710610e4, 2.1213794301586595867e4,
		5.3941960214247511077e3, 6.8718700749205790830e2, 4.2313330701600911252e1, 1}
	tailNumerator = [8]float64{7.74545014278341407640e-4, 2.27238449892691845833e-2, 2.41780725177450611770e-1, 1.27045825245236838258e0,
		3.64784832476320460504e0, 5.76949722146069140550e0, 4.63033784615654529590e0, 1.42343711074968357734e0}
	tailDenominator = [8]float64{1.05075007164441684324e-9, 5.47593808499534494600e-4, 1.51986665636164571966e-2, 1.48103976427480074590e-1,
		6.89767334985100004550e-1, 1.67638483018380384940e0, 2.05319162663775882187e0, 1}
	farNumerator = [8]float64{2.01033439929228813265e-7, 2.71155556874348757815e-5, 1.24266094738807843860e-3, 2.65321895265761230930e-2,
		2.96560571828504891230e-1, 1.78482653991729133580e0, 5.46378491116411436990e0, 6.65790464350110377720e0}
	farDenominator = [8]float64{2.04426310338993978564e-15, 1.42151175831644588870e-7, 1.84631831751005468180e-5, 7.86869131145613259100e-4,
		1.48753612908506148525e-2, 1.36929880922735805310e-1, 5.99832206555887937690e-1, 1}
)
