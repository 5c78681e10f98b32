"""Tests of `driftc serve` with the Python client of the OpenAI API.

client.py URL DRIFTC BUNDLE: URL is a server of the bundle, with the models `word` and `bert` and the key `secret`.
"""

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import openai

url, driftc, bundle = sys.argv[1:]
client = openai.OpenAI(base_url=url, api_key="secret", max_retries=0)


def chat(text, **options):
    messages = [{"role": "user", "content": text}]
    return client.chat.completions.create(model="word", messages=messages, temperature=0, **options)


def refused(kind, says, call):
    try:
        call()
    except kind as error:
        assert says in str(error), error
        return error
    raise AssertionError(f"no {kind.__name__}")


# Answers, streams, and their parts.
assert [model.id for model in client.models.list()] == ["word", "bert"]
answer = chat("one two", logprobs=True, top_logprobs=2)
assert answer.choices[0].message.content == " aye captain" and answer.choices[0].finish_reason == "stop"
assert [token.token for token in answer.choices[0].logprobs.content] == [" aye", " captain"]
assert answer.usage.total_tokens == answer.usage.prompt_tokens + 3
chunks = list(chat("one two", stream=True, stream_options={"include_usage": True}))
assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks[:-1]) == " aye captain"
assert chunks[-2].choices[0].finish_reason == "stop" and chunks[-1].usage.completion_tokens == 3
text = client.completions.create(model="word", prompt="one", stop="four", temperature=0, logprobs=1)
assert text.choices[0].text == " two three " and text.choices[0].logprobs.text_offset[:2] == [0, 4]
extra = client.completions.create(model="word", prompt="one", temperature=2, extra_body={"top_k": 1, "min_p": 0.1})
assert extra.choices[0].text.startswith(" two three four")

# The client asks for base64 and decodes it.
both = client.embeddings.create(model="bert", input=["one two", "zig"])
plain = client.embeddings.create(model="bert", input="zig", encoding_format="float")
assert len(both.data) == 2 and len(plain.data[0].embedding) == 32
assert max(abs(a - b) for a, b in zip(both.data[1].embedding, plain.data[0].embedding)) < 1e-6

# Errors become exceptions of the client.
error = refused(openai.BadRequestError, "n=1", lambda: chat("one", n=2))
assert error.param == "n" and error.code == "unsupported_parameter"
refused(openai.BadRequestError, "context", lambda: chat("one " * 100))
refused(openai.NotFoundError, "other", lambda: client.completions.create(model="other", prompt="one"))
refused(openai.AuthenticationError, "key", lambda: client.with_options(api_key="wrong").models.list())

# An abandoned stream leaves the server usable.
with client.completions.create(model="word", prompt="zig zag", max_tokens=40, stream=True) as stream:
    next(iter(stream))

# 32 clients at once get the texts of `driftc generate`.
prompts = ["one", "two three", "zig zag zig", "five", "nine ten", "aye", "zag", "six seven eight"]


def generate(prompt):
    command = [driftc, "generate", bundle, "-p", prompt, "--max-tokens", "20"]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return done.stdout.removesuffix("\n")


def complete(prompt):
    request = dict(model="word", prompt=prompt, max_tokens=20, temperature=0)
    if len(prompt) % 2:
        return client.completions.create(**request).choices[0].text
    return "".join(chunk.choices[0].text for chunk in client.completions.create(**request, stream=True))


wanted = {prompt: generate(prompt) for prompt in prompts}
with ThreadPoolExecutor(32) as pool:
    for prompt, text in zip(prompts * 16, pool.map(complete, prompts * 16)):
        assert text == wanted[prompt], f"{prompt}: {text!r} is not {wanted[prompt]!r}"
print("the client library openai", openai.__version__, "works")
