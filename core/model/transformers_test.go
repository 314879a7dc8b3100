package model

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-json"
	"github.com/stretchr/testify/require"
)

// goldenCase is a request with what torch counted (testdata/make_golden.py).
type goldenCase struct {
	Name   string          `json:"name"`
	Config json.RawMessage `json:"config"`
	Head   string          `json:"head"`
	Freeze bool            `json:"freeze_feature_encoder"`
	Want   struct {
		ClassName  string `json:"class_name"`
		Total      int64  `json:"total"`
		Trainable  int64  `json:"trainable"`
		Adafactor  int64  `json:"adafactor_bytes"`
		HiddenSize int    `json:"hidden_size"`
		Layers     int    `json:"layers"`
		Digest     string `json:"digest"`
	} `json:"want"`
}

func golden(t *testing.T) []goldenCase {
	raw, err := os.ReadFile("testdata/golden.json")
	require.NoError(t, err)
	var cases []goldenCase
	require.NoError(t, json.Unmarshal(raw, &cases))
	require.Greater(t, len(cases), 150)
	return cases
}

func TestCountsEqualTorch(t *testing.T) {
	for i, c := range golden(t) {
		t.Run(fmt.Sprintf("%d %s %s", i, c.Want.ClassName, c.Name), func(t *testing.T) {
			m, err := Profile(Request{Config: c.Config, Head: c.Head, FreezeFeatureEncoder: c.Freeze})
			require.NoError(t, err)
			require.Equal(t, c.Want.ClassName, m.ClassName)
			require.Equal(t, c.Want.Total, m.TotalParameters, "total")
			require.Equal(t, c.Want.Trainable, m.TrainableParameters, "trainable")
			require.Equal(t, c.Want.HiddenSize, *m.HiddenSize)
			require.Equal(t, c.Want.Layers, *m.Layers)
			require.Equal(t, 4*c.Want.Total, m.ParameterBytes)
			require.Equal(t, 4*c.Want.Trainable, m.GradientBytes)
			want := map[string]int64{"adamw": 8 * c.Want.Trainable, "adamw_8bit": 2 * c.Want.Trainable, "adafactor": c.Want.Adafactor, "sgd": 0}
			require.Equal(t, want, m.OptimizerBytes)
		})
	}
}

// Every parameter's name, shape and requires_grad, not only their sum.
func TestParametersEqualTorch(t *testing.T) {
	for i, c := range golden(t) {
		f, kind, _, err := readConfig(c.Config)
		require.NoError(t, err)
		var lines []string
		_, err = countConfig(f, families[kind], c.Head, c.Freeze, func(path string, trainable bool, dims []int) {
			lines = append(lines, fmt.Sprintf("%s [%s] %t", path, strings.ReplaceAll(strings.Trim(fmt.Sprint(dims), "[]"), " ", ", "), trainable))
		})
		require.NoError(t, err)
		slices.Sort(lines)
		sum := sha256.Sum256([]byte(strings.Join(lines, "\n")))
		require.Equal(t, c.Want.Digest, hex.EncodeToString(sum[:]), "case %d %s %s\n%s", i, c.Want.ClassName, c.Config, strings.Join(lines, "\n"))
	}
}

func TestCatalogueEqualsTorch(t *testing.T) {
	counted := map[string]int64{}
	for _, c := range golden(t) {
		if c.Name == "" {
			continue
		}
		m, err := Profile(Request{Name: c.Name})
		require.NoError(t, err)
		require.Equal(t, c.Name, m.Name)
		require.Equal(t, "catalogue", m.Source)
		require.Equal(t, c.Want.Total, m.TotalParameters, c.Name)
		require.Equal(t, c.Want.Trainable, m.TrainableParameters, c.Name)
		require.LessOrEqual(t, m.OptimizerBytes["adafactor"], guessedAdafactor(m.TrainableParameters), c.Name)
		counted[c.Name] = m.TotalParameters
	}
	in, err := catalogue()
	require.NoError(t, err)
	for _, e := range in.entries {
		_, kind, _, err := readConfig(e.Config)
		require.NoError(t, err)
		if _, here := families[kind]; here {
			require.Equal(t, e.Parameters, counted[e.ID], "%s: run testdata/make_golden.py after changing catalogue.json", e.ID)
			continue
		}
		m, err := Profile(Request{Name: e.ID}) // what Python counts: python/tests/machine/test_model_config.py
		require.NoError(t, err)
		require.Equal(t, []any{e.Parameters, e.ClassName, kind}, []any{m.TotalParameters, m.ClassName, m.Architecture})
		require.NotEmpty(t, m.ClassName)
	}
}
