package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asrconfig/asrconfig-go/core/gpus"
	"github.com/asrconfig/asrconfig-go/core/timing"
	"github.com/asrconfig/asrconfig-go/core/timing/kernel"
)

func fittedCard(t *testing.T) kernel.Card {
	t.Helper()
	entry, _, err := gpus.Parse("V100-16GB PCIe")
	require.NoError(t, err)
	card, err := kernel.CardOf(entry)
	require.NoError(t, err)
	return card
}

// write puts one operator's file where tables look for it.
func write(t *testing.T, folder, operator, text string) {
	t.Helper()
	path := filepath.Join(folder, operator, "p2.1.0")
	require.NoError(t, os.MkdirAll(path, 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(path, "card.csv"), []byte(text), 0o600))
}

func TestFitFindsTheSharesThatMadeTheTable(t *testing.T) {
	card, folder := fittedCard(t), t.TempDir()
	truth := kernel.Efficiency{Tiles: [5]float64{0.85, 0.75, 0.6, 0.4, 0.2}, Prologue: 20, Bandwidth: 0.7}
	var table strings.Builder
	table.WriteString("OPName,Latency,B,M,N,K\nlinear,0.02,1,16,16,16\n")
	for i := range 400 {
		o := kernel.Operation{Kind: kernel.GEMM, DType: kernel.Float32, Batch: 1, M: int64(300 + 37*i%4000), N: int64(400 + 91*i%5000), K: int64(512 + 4*(13*i%1500))}
		fmt.Fprintf(&table, "linear,%g,1,%d,%d,%d\n", 1e3*truth.Seconds(o, card, card.FP32, true)+0.018, o.M, o.K, o.N)
	}
	write(t, folder, "linear", table.String())
	rows, err := tables{folder, "card", "card"}.products("linear")
	require.NoError(t, err)
	found, spread := fitProducts(rows, card)
	assert.InDelta(t, 1, spread.Likely, 0.02)
	assert.Greater(t, spread.Low, 0.95)
	assert.Less(t, spread.High, 1.05)
	assert.InDelta(t, truth.Tiles[0], found.Tiles[0], 0.05)
}

func TestSharesOfTheBandwidthAreMedians(t *testing.T) {
	folder := t.TempDir()
	card := fittedCard(t)
	for _, class := range classes {
		for operator, tensors := range class.operators {
			var table strings.Builder
			table.WriteString("Latency,B,H\n0.01,1,1\n")
			for i := range 30 {
				for _, length := range []int{512, 2048} {
					b := 120000 + 1000*i
					fmt.Fprintf(&table, "%g,%d,%d\n", 0.009+1e3*4*tensors*float64(b*length)/(0.8*card.Bandwidth), b, length)
				}
			}
			write(t, folder, operator, table.String())
		}
	}
	shares, err := fitMemory(tables{folder, "card", "card"}, card, map[string]timing.Range{})
	require.NoError(t, err)
	require.Len(t, shares, len(classes))
	for class, share := range shares {
		assert.InDelta(t, 0.8, share, 1e-3, class)
	}
}

func TestBrokenTablesAreNamed(t *testing.T) {
	folder := t.TempDir()
	from := tables{folder, "card", "card"}
	_, err := from.products("linear")
	require.ErrorContains(t, err, "linear")
	for text, complaint := range map[string]string{
		"Latency,B,M,N,K\n":               "no lines",
		"Latency,B,M,N\n1,1,1,1\n":        "no column K",
		"Latency,B,M,N,K\nfast,1,1,1,1\n": "line 2",
	} {
		write(t, folder, "linear", text)
		_, err := from.products("linear")
		require.ErrorContains(t, err, complaint)
		require.ErrorContains(t, err, "linear")
	}
}
