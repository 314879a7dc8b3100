package view

import (
	"encoding/json"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// ofSpeech are words that do not belong into a view of texts.
var ofSpeech = regexp.MustCompile(`(?i)\b(clips?|audio|durations?|sample rates?|codecs?)\b`)

// asTexts is a record of testdata that says that its rows are texts, wherever it has rows.
func asTexts(t *testing.T, kind string) []byte {
	var told map[string]any
	require.NoError(t, json.Unmarshal(record(t, kind), &told))
	told["row_kind"] = "texts"
	for _, inside := range []string{"config", "dataset", "setting"} {
		if part, ok := told[inside].(map[string]any); ok {
			part["row_kind"] = "texts"
			delete(part, "source")
			delete(part, "warnings")
			delete(part, "bad_files")
			delete(part, "alternatives")
		}
	}
	for _, spoken := range []string{"decisions", "cautions", "bad_files", "source", "warnings", "shape_words", "assumptions", "notes", "findings", "bottleneck", "next_change", "options"} {
		delete(told, spoken) // texts of the record's own
	}
	raw, err := json.Marshal(told)
	require.NoError(t, err)
	return raw
}

func TestViewsOfTextsCountTokens(t *testing.T) {
	for kind, figure := range map[string]string{"dataset": " tokens", "plan": " texts a step", "comparison": " tokens; effective batch", "memory run": " tokens, ", "benchmark": " texts"} {
		raw := asTexts(t, kind)
		for _, format := range []string{"text", "brief", "html", "page"} {
			shown := rendered(t, kind, format, raw).Text
			if format == "html" || format == "page" {
				_, shown = sound(t, regexp.MustCompile(`(?s)<style.*?</style>`).ReplaceAllString(shown, ""))
			}
			require.Empty(t, ofSpeech.FindAllString(shown, -1), "%s as %s: %s", kind, format, shown)
			if format == "text" {
				require.Contains(t, strings.ReplaceAll(shown, "\n", " "), figure, kind)
			}
		}
	}
}
