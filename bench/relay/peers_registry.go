package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/muxproxy/muxproxy/bench/rig"
)

// Portkey's gateway routes by headers: to a provider, at an address of one's own.
func (b *bench) portkey() peer {
	gateway := filepath.Join(b.installed, "portkey", "node_modules", "@portkey-ai", "gateway")
	start := func(ctx context.Context, upstream string) (*process, error) {
		p, err := launch(ctx, func(_ string, port int) ([]string, error) {
			return []string{"node", filepath.Join(gateway, "build", "start-server.js"), fmt.Sprintf("--port=%d", port), "--headless"}, nil
		}, "NODE_ENV=production")
		if err != nil {
			return nil, err
		}
		p.open = func(_ context.Context, count int, _ string) ([]access, error) {
			header := fmt.Sprintf("x-portkey-provider: openai\r\nx-portkey-custom-host: http://%s/v1\r\n", upstream)
			return slices.Repeat([]access{{path: chatPath, secret: anyCredential, header: header}}, count), nil
		}
		return p, nil
	}
	version := func(context.Context) (string, error) {
		text, err := os.ReadFile(filepath.Join(gateway, "package.json"))
		if err != nil {
			return "", fmt.Errorf("not installed: %w", err)
		}
		var is struct{ Version string }
		return is.Version, json.Unmarshal(text, &is)
	}
	return peer{target: target{name: "portkey", start: start}, does: "routes by headers", version: version}
}

const litellmConfig = `model_list:
  - model_name: "*"
    litellm_params:
      model: openai/*
      api_base: http://%s/v1
      api_key: bench
general_settings:
  master_key: %s
`

// LiteLLM's proxy knows one key and routes all models to the upstream. It takes
// the events of the upstream, which are all the same, for a model that is stuck.
func (b *bench) litellm() peer {
	const key = "sk-" + anyCredential
	start := func(ctx context.Context, upstream string) (*process, error) {
		p, err := launch(ctx, func(dir string, port int) ([]string, error) {
			config := filepath.Join(dir, "config.yaml")
			return []string{
				b.python("litellm"), "-m", "litellm.proxy.proxy_cli", "--config", config,
				"--host", "127.0.0.1", "--port", strconv.Itoa(port), "--num_workers", "1", "--keepalive_timeout", "300",
			}, os.WriteFile(config, fmt.Appendf(nil, litellmConfig, upstream, key), 0o600)
		}, "LITELLM_LOG=ERROR", "LITELLM_LOCAL_MODEL_COST_MAP=True", "LITELLM_TELEMETRY=False", "REPEATED_STREAMING_CHUNK_LIMIT=1000000000")
		if err != nil {
			return nil, err
		}
		p.open = func(_ context.Context, count int, _ string) ([]access, error) {
			return slices.Repeat([]access{{path: chatPath, secret: key}}, count), nil
		}
		return p, nil
	}
	return peer{target: target{name: "litellm", start: start}, does: "checks the key, routes by model", version: b.pythonVersion("litellm", "litellm")}
}

// rllm-model-gateway records each call of a session, which is made by calling it.
func (b *bench) rllm() peer {
	start := func(ctx context.Context, upstream string) (*process, error) {
		p, err := launch(ctx, func(_ string, port int) ([]string, error) {
			return []string{
				b.python("rllm"), "-m", "rllm_model_gateway", "--host", "127.0.0.1", "--port", strconv.Itoa(port),
				"--store", "memory", "--log-level", "warning", "--worker", "http://" + upstream + "/v1",
			}, nil
		})
		if err != nil {
			return nil, err
		}
		gateway := "http://" + p.addr
		p.open = func(ctx context.Context, count int, _ string) ([]access, error) {
			var all []access
			for range count {
				var made struct{ URL string }
				if err := rig.Call(ctx, http.DefaultClient, http.MethodPost, gateway+"/sessions", "{}", &made); err != nil {
					return nil, err
				}
				all = append(all, access{path: made.URL + "/chat/completions", secret: anyCredential})
			}
			return all, nil
		}
		p.end = func(ctx context.Context, sessions []access) error {
			for _, a := range sessions {
				path := strings.TrimSuffix(a.path, chatPath)
				if err := rig.Call(ctx, http.DefaultClient, http.MethodDelete, gateway+path, "", nil); err != nil {
					return err
				}
			}
			return nil
		}
		return p, nil
	}
	return peer{target: target{name: "rllm-model-gateway", start: start}, does: "records in memory", version: b.pythonVersion("rllm", "rllm-model-gateway")}
}

// python is the interpreter of a peer's environment.
func (b *bench) python(peer string) string {
	return filepath.Join(b.installed, peer, ".venv", "bin", "python")
}

func (b *bench) pythonVersion(peer, distribution string) func(context.Context) (string, error) {
	return says(b.python(peer), "-c", fmt.Sprintf("import importlib.metadata as m; print(m.version(%q))", distribution))
}

// verifiers records what it hands on, and knows its rollouts in its own process
// only; a program of ours makes them there.
func (b *bench) verifiers() peer {
	start := func(ctx context.Context, upstream string) (*process, error) {
		p, err := launch(ctx, func(_ string, port int) ([]string, error) {
			program := filepath.Join(b.installed, "verifiers", "serve.py")
			return []string{b.python("verifiers"), program, "http://" + upstream + "/v1", strconv.Itoa(port)}, nil
		}, "BENCH_API_KEY=bench")
		if err != nil {
			return nil, err
		}
		control := "http://" + p.addr
		p.open = func(ctx context.Context, count int, model string) ([]access, error) {
			var made struct{ Secrets []string }
			url := fmt.Sprintf("%s/sessions?count=%d&model=%s", control, count, model)
			if err := rig.Call(ctx, http.DefaultClient, http.MethodPost, url, "", &made); err != nil {
				return nil, err
			}
			var all []access
			for _, secret := range made.Secrets {
				all = append(all, access{path: chatPath, secret: secret})
			}
			return all, nil
		}
		p.end = func(ctx context.Context, _ []access) error {
			return rig.Call(ctx, http.DefaultClient, http.MethodDelete, control+"/sessions", "", nil)
		}
		var is struct{ Address string }
		if err := rig.Call(ctx, http.DefaultClient, http.MethodGet, control+"/address", "", &is); err != nil {
			return nil, errors.Join(err, p.stop())
		}
		p.addr = is.Address
		return p, nil
	}
	return peer{
		target: target{name: "verifiers", start: start}, does: "records in memory, overrides the model",
		version: b.pythonVersion("verifiers", "verifiers"), holds: true,
	}
}
