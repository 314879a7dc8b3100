package dataset

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestPiecesNamedByFragments(t *testing.T) {
	root := tree(t, map[string][]byte{"talk.wav": wavOf(16000), "whole.wav#t=0,0.5": wavOf(3200)})
	talk := root + "/talk.wav"
	paths := []string{
		talk + "#t=0.25,0.75", talk, talk + "#t=0.9,1.5", talk + "#t=1.5,2", talk + "#t=0.5,0.25", talk + "#t=x,1",
		root + "/whole.wav#t=0,0.5", root + "/none.wav#t=0,1", talk + "#t=0,0.125", talk + "#t=NaN,1",
	}
	told := told(scan(t, Request{Paths: paths}), root)
	assert.Equal(t, []string{"talk.wav#t=0.25,0.75 0.500", "talk.wav 1.000"}, told[:2])
	assert.Contains(t, told[2], "0.100", "it ends behind the file")
	assert.Contains(t, told[3], "the row starts at 1.500 s, but the file ends at 1.000 s")
	assert.Contains(t, told[4], "the row asks for -0.25 s from 0.5 s on")
	assert.Contains(t, told[5], "talk.wav#t=x,1:")
	assert.Equal(t, "whole.wav#t=0,0.5 0.200", told[6], "a file that is called so")
	assert.Contains(t, told[7], "none.wav#t=0,1:")
	assert.Equal(t, "talk.wav#t=0,0.125 0.125", told[8])
	assert.Contains(t, told[9], "the row asks for NaN s from NaN s on")
}

func TestPiecesOfEmbeddedFiles(t *testing.T) {
	table := Arrow{Batches: []ArrowBatch{{Rows: 2, Bytes: binaryOf(32, 0, wavOf(16000), wavOf(8000)),
		Paths: binaryOf(32, 0, []byte("a.wav#t=0.5,1"), []byte("a.wav#t=0,0.25"))}}}
	assert.Equal(t, []string{"a.wav#t=0.5,1 0.500", "a.wav#t=0,0.25 0.250"}, told(scan(t, Request{Arrow: &table}), ""))
}
