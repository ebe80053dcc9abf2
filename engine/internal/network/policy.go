package network

import "math"

// The latent Gaussian policy around the step graph: seeded draws of epsilon, the log-likelihood, group advantages, and
// the choice of a trajectory. The graph gives mu and log sigma and forms z = mu + tau*sigma*epsilon.

// LogLikelihood returns log pi(z | mu, sigma) of z = mu + tau*sigma*epsilon, tau > 0, divided by sqrt(N) (LDVN, the
// latent-dimension variance normalisation), so that the spread over a group does not depend on the latent size N:
//
//	-1/(2 sqrt(N)) sum_i [ ((z_i - mu_i)/(tau sigma_i))^2 + log(2 pi tau^2 sigma_i^2) ]
//
// where the quotient is epsilon_i. epsilon and logSigma have N values. (Paper, Eq. logpi; the supplement divides by
// sqrt(N) a second time, which the main text does not.)
func LogLikelihood(epsilon, logSigma []float32, tau float64) float64 {
	constant := math.Log(2*math.Pi) + 2*math.Log(tau)
	sum := 0.0
	for i, e := range epsilon {
		sum += float64(float64(e)*float64(e)) + constant + float64(2*float64(logSigma[i]))
	}
	return -sum / (2 * math.Sqrt(float64(len(epsilon))))
}

// Advantages returns (R_j - mean R) / (sd R + 1e-8) of a group's rewards, with the population's standard deviation.
// (Paper, Eq. A_j.)
func Advantages[T float32 | float64](rewards []T) []float64 {
	n := float64(len(rewards))
	mean, variance := 0.0, 0.0
	for _, r := range rewards {
		mean += float64(r) / n
	}
	for _, r := range rewards {
		variance += (float64(r) - mean) * (float64(r) - mean) / n
	}
	advantages := make([]float64, len(rewards))
	for j, r := range rewards {
		advantages[j] = (float64(r) - mean) / (math.Sqrt(variance) + 1e-8)
	}
	return advantages
}

// Best returns the trajectory with the greatest reward: the first of equals, so that the mean (trajectory 0) wins a
// tie. A NaN never wins; -1 says that every reward is NaN.
func Best(rewards []float32) int {
	best := -1
	for j, r := range rewards {
		if r == r && (best < 0 || r > rewards[best]) {
			best = j
		}
	}
	return best
}
