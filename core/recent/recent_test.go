package recent

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestTheOldestGoFirst(t *testing.T) {
	m := New[string, int](2)
	m.Put("a", 1)
	m.Put("b", 2)
	m.Put("a", 3) // newer than b from here on
	m.Put("c", 4)
	_, known := m.Get("b")
	assert.False(t, known)
	for question, answer := range map[string]int{"a": 3, "c": 4} {
		found, known := m.Get(question)
		assert.True(t, known, question)
		assert.Equal(t, answer, found, question)
	}
}
