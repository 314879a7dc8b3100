package report

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asrconfig/asrconfig-go/core/diagnosis"
	"github.com/asrconfig/asrconfig-go/core/runlog"
)

func TestAPartInOrderIsNotReportedBesideAPartWithACause(t *testing.T) {
	short, well, cause := diagnosis.Finding{Kind: "too_short"}, diagnosis.Finding{Kind: "healthy"}, diagnosis.Finding{Kind: "evaluations"}
	for _, row := range []struct{ found, want []diagnosis.Finding }{
		{[]diagnosis.Finding{short, well, cause}, []diagnosis.Finding{cause}},
		{[]diagnosis.Finding{short, well, well}, []diagnosis.Finding{well, well}},
		{[]diagnosis.Finding{short}, []diagnosis.Finding{short}},
		{nil, nil},
	} {
		assert.Equal(t, row.want, weightiest(row.found))
	}
}

func TestEnergyIsNotCountedAcrossAGap(t *testing.T) {
	watts := line{[]float64{0, 1, 2, 3, 1000, 1001, 1002}, runlog.Column{3600, 3600, absent, 3600, 3600, 3600, 3600}}
	assert.Equal(t, totals{6, 6 * 3600, 6 * 3600, 6}, watts.totals())
	assert.Equal(t, 3600.0, *watts.mean())
	assert.Nil(t, line{}.mean())
	assert.Equal(t, 2.0, *line{[]float64{1, 1}, runlog.Column{1, 3}}.mean(), "of one moment")
}

func TestLinesAreThinnedAndBroken(t *testing.T) {
	a, err := newAxis(&timeline{duration: 960}, "time")
	require.NoError(t, err)
	assert.Equal(t, "min", a.unit)
	l := line{[]float64{0, 1, 2, 4, 6, 8, 100}, runlog.Column{10, 30, 20, absent, 40, 50, 60}}
	assert.Equal(t, [][][2]float64{{{0, 3}, {2.0 / 60, 2}}, {{6.0 / 60, 4}, {8.0 / 60, 5}}, {{100.0 / 60, 6}}}, a.thinned(l, false, 10))
	assert.Equal(t, 20.0, a.thinned(l, true, 1)[0][0][1])
}
