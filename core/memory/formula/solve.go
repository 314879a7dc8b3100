package formula

import "math"

// solve finds the coefficients with which as many rows as there are parts yield their sizes, by
// elimination with the largest pivot; false when the parts are linearly dependent.
func solve(sizes []int64, parts []candidate) (x [maxTerms]float64, ok bool) {
	n := len(parts)
	var few [16][maxTerms + 1]float64 // shapes, as a trace has
	m := few[:min(len(sizes), len(few))]
	if len(sizes) > len(few) {
		m = make([][maxTerms + 1]float64, len(sizes))
	}
	for r := range m {
		for i, p := range parts {
			m[r][i] = p.scaled[r]
		}
		m[r][n] = float64(sizes[r])
	}
	for i := range n {
		pivot := i
		for r := i; r < len(m); r++ {
			if math.Abs(m[r][i]) > math.Abs(m[pivot][i]) {
				pivot = r
			}
		}
		if math.Abs(m[pivot][i]) < 1e-9 {
			return x, false
		}
		m[i], m[pivot] = m[pivot], m[i]
		for r := i + 1; r < len(m); r++ {
			share := m[r][i] / m[i][i]
			for k := i; k <= n; k++ {
				m[r][k] -= share * m[i][k]
			}
		}
	}
	for i := n - 1; i >= 0; i-- {
		x[i] = m[i][n]
		for k := i + 1; k < n; k++ {
			x[i] -= m[i][k] * x[k]
		}
		x[i] /= m[i][i]
	}
	for i, p := range parts {
		x[i] /= p.scale
	}
	return x, true
}
