// Checks that what the official JavaScript SDKs do by themselves when a connection is lost costs nothing. The environment
// and the output are those of ../python/retries.py.

import Anthropic from '@anthropic-ai/sdk'
import OpenAI from 'openai'
import { VERSION } from 'openai/version'

const TEXT = 'Hello! How can I help?'
const openai = new OpenAI()
const anthropic = new Anthropic()

const user = (content) => [{ role: 'user', content }]
const asks = {
  chat: async (name, options) =>
    (await openai.chat.completions.create({ model: 'slow', messages: user(name) }, options)).choices[0].message.content,
  chat_stream: async (name, options) => {
    let text = ''
    const stream = await openai.chat.completions.create({ model: 'slow', messages: user(name), stream: true }, options)
    for await (const chunk of stream) text += chunk.choices[0]?.delta.content ?? ''
    return text
  },
  responses: async (name, options) => (await openai.responses.create({ model: 'slow', input: name }, options)).output_text,
  responses_stream: async (name, options) => {
    let text = ''
    for await (const event of await openai.responses.create({ model: 'slow', input: name, stream: true }, options))
      if (event.type === 'response.output_text.delta') text += event.delta
    return text
  },
  messages: async (name, options) =>
    (await anthropic.messages.create({ model: 'slow', max_tokens: 99, messages: user(name) }, options)).content[0].text,
  messages_stream: (name, options) =>
    anthropic.messages.stream({ model: 'slow', max_tokens: 99, messages: user(name) }, options).finalText(),
}

async function run(ask, lose) {
  const name = `${ask}_${lose}_lost`
  const began = performance.now()
  const error = await asks[ask](name, { headers: { 'X-Lose': lose } }).then(
    (got) => (got === TEXT ? undefined : `got ${JSON.stringify(got)}`),
    (e) => e.stack ?? String(e),
  )
  return { check: name, ok: !error, seconds: Math.round(performance.now() - began) / 1000, ...(error && { error }) }
}

const lines = await Promise.all(Object.keys(asks).flatMap((ask) => ['answer', 'call'].map((lose) => run(ask, lose))))
for (const line of lines) console.log(JSON.stringify(line))
const failed = lines.filter(({ ok }) => !ok).length
console.log(JSON.stringify({ checks: lines.length, failed, sdk: VERSION }))
process.exit(failed ? 1 : 0)
