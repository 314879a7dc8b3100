package api

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestARequestIsOneJSONValue(t *testing.T) {
	const good = `{"v":1,"op":"plan.check","args":{"target_batch_size":32,"safety_margin":0.85}}`
	require.Contains(t, string(Call([]byte(" "+good+"\n"))), `"ok":true`)
	for _, text := range []string{
		good + "]", good + "}", good + " ]]}", good + good, good + ",", good[:len(good)-1], "", " ", "[" + good + "]", good + "\xff",
		strings.Replace(good, "1", "01", 1), strings.Replace(good, "1", "1.", 1), strings.Replace(good, "32", "NaN", 1),
		strings.Replace(good, "32", strings.Repeat("[", 1<<20), 1), strings.Replace(good, "32,", "32],", 1), strings.Replace(good, "32", "--32", 1),
	} {
		answer := string(Call([]byte(text)))
		require.Contains(t, answer, `"code":"invalid_argument","message":"reading the request: `, "%.100q", text)
	}
}
