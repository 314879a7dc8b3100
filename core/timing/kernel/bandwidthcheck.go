package kernel

import "slices"

const (
	// of what is published, as the median of a kind's kernels that no cache holds
	mostOfBandwidth = 1.1
	uncached        = 2.0 // times the L2 cache: what it holds of the kernel before counts little
	// between elementwise kernels and copies, each against what is expected of it
	farthestKinds = 3.0
)

// checkBandwidth rejects kernels that move bytes faster than the memory, or that imply two
// different bandwidths: then something else ran on the card, or its clocks changed, during the
// measurement. Errors: InvalidArgument.
func (t Table) checkBandwidth(m *Model, p Profile) error {
	rates := map[Kind][]float64{}
	for _, row := range t.Kernels {
		if !row.product() && row.Bytes() > uncached*m.card.L2 {
			rates[row.Kind] = append(rates[row.Kind], row.Bytes()/row.Seconds/m.card.Bandwidth)
		}
	}
	for kind, shares := range rates {
		if share := median(shares); share > mostOfBandwidth {
			return t.wrong("%s kernels at %.0f %% of the bandwidth that is published of a %s", kind,
				100*share, m.card.Key)
		}
	}
	for _, f := range p.Factors {
		copies, measured := p.factor(groupKey{string(Copy), f.DType})
		if f.Group != string(Elementwise) || !measured {
			continue
		}
		if apart := f.Factor / copies; max(apart, 1/apart) > farthestKinds {
			return t.wrong("elementwise kernels in %s that take %.2f times what is expected, and "+
				"copies that take %.2f times: one memory cannot do both", f.DType, f.Factor, copies)
		}
	}
	return nil
}

func (p Profile) factor(key groupKey) (float64, bool) {
	i := slices.IndexFunc(p.Factors, func(f Factor) bool {
		return f.Group == key.group && f.DType == key.dtype
	})
	if i < 0 {
		return 0, false
	}
	return p.Factors[i].Factor, true
}

func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[len(sorted)/2]
}
