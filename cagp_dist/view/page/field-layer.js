// A custom layer of MapLibre: a field on a latitude-longitude grid, each cell where it is, globe or flat.

const MISSING = -3e38; // NaN may be optimised away by drivers
const LARGEST = 1e38; // of four bytes; what is below minus this is missing
const AXIS = 4096; // entries of the tables that lead from degrees to rows and columns

const VERTEX = `
in vec2 a_place;
uniform float u_turn;
out vec2 v_place;
void main() {
  v_place = a_place;
  float lambda = radians(a_place.x), phi = radians(a_place.y);
  float flat_phi = radians(clamp(a_place.y, -85.0511287798, 85.0511287798));
  vec2 mercator = vec2(0.5 + a_place.x / 360.0 + u_turn, 0.5 - log(tan(0.785398163397 + 0.5 * flat_phi)) / 6.28318530718);
#ifdef GLOBE
  gl_Position = interpolateProjection(mercator, vec3(sin(lambda) * cos(phi), sin(phi), cos(lambda) * cos(phi)), 0.0);
#else
  gl_Position = projectTile(mercator);
#endif
}`;

const FRAGMENT = `#version 300 es
precision highp float;
precision highp sampler2D;
uniform sampler2D u_values, u_rows, u_columns, u_errors, u_error_rows, u_error_columns, u_colours;
uniform vec4 u_box, u_error_box; // west, south, east, north
uniform vec2 u_range;
uniform float u_smooth, u_around, u_error_around;
uniform float u_told; // one over the error at which nothing is told; 0 where errors are not looked at
uniform float u_fade, u_hatch; // u_hatch: pixels of the screen in one of the page, or 0
in vec2 v_place;
out vec4 colour;

float position(sampler2D axis, float share) {
  float x = clamp(share, 0.0, 1.0) * ${(AXIS - 1).toFixed(1)};
  int k = int(min(floor(x), ${(AXIS - 2).toFixed(1)}));
  return mix(texelFetch(axis, ivec2(k, 0), 0).r, texelFetch(axis, ivec2(k + 1, 0), 0).r, x - float(k));
}
float at(sampler2D values, ivec2 cell, float around) {
  ivec2 size = textureSize(values, 0);
  int column = around > 0.5 ? (cell.x % size.x + size.x) % size.x : clamp(cell.x, 0, size.x - 1);
  return texelFetch(values, ivec2(column, clamp(cell.y, 0, size.y - 1)), 0).r;
}
float value(sampler2D values, sampler2D rows, sampler2D columns, vec4 box, float around) {
  vec2 share = (v_place - box.xy) / (box.zw - box.xy);
  if (around > 0.5) share.x = fract(share.x); // else the outermost cells go on: error bars may have a coarser grid
  vec2 place = vec2(position(columns, share.x), position(rows, share.y));
  float own = at(values, ivec2(floor(place + 0.5)), around);
  if (u_smooth < 0.5 || own < -1e38) return own;
  vec2 low = floor(place), part = place - low;
  ivec2 cell = ivec2(low);
  float a = at(values, cell, around), b = at(values, cell + ivec2(1, 0), around);
  float c = at(values, cell + ivec2(0, 1), around), d = at(values, cell + ivec2(1, 1), around);
  if (min(min(a, b), min(c, d)) < -1e38) return own;
  return mix(mix(a, b, part.x), mix(c, d, part.x), part.y);
}
void main() {
  float found = value(u_values, u_rows, u_columns, u_box, u_around);
  if (found < -1e38) discard;
  float share = (found - u_range.x) / (u_range.y - u_range.x);
  vec3 shown = texture(u_colours, vec2(clamp(share, 0.002, 0.998), 0.5)).rgb;
  float alpha = 1.0;
  if (u_told > 0.0) {
    float error = value(u_errors, u_error_rows, u_error_columns, u_error_box, u_error_around) * u_told;
    if (error >= 0.0 && u_fade > 0.5) alpha = 1.0 - 0.94 * min(error * error, 1.0);
    // where more than half of the variance is left, lines that stand out from every colour
    float across = mod(gl_FragCoord.x + gl_FragCoord.y, 9.0 * u_hatch);
    if (u_hatch > 0.0 && error >= 0.0 && error * error > 0.5 && across < 1.5 * u_hatch)
      shown = mix(shown, vec3(dot(shown, vec3(0.3, 0.59, 0.11)) < 0.5 ? 1.0 : 0.0), 0.6);
  }
  colour = vec4(shown * alpha, alpha);
}`;

export class FieldLayer {
  id = "field";
  type = "custom";
  renderingMode = "2d";
  smooth = true;
  told = 0; // one over the error at which nothing is told
  marked = false; // whether there are errors to look at
  fade = false;
  hatch = false;
  range = [0, 1];
  #fields = {};
  #programs = new Map();

  // Shows values (rows, columns) of a grid; where `errors`, which may have another, are large, they are marked.
  show(values, grid, errors, errorGrid) {
    this.#set("values", values, grid);
    if (errors) this.#set("errors", errors, errorGrid);
    this.marked = Boolean(errors);
    this.hidden = false;
    this.map?.triggerRepaint();
  }

  hide() {
    this.hidden = true;
    this.map?.triggerRepaint();
  }

  colour(colours) {
    this.colours = colours;
    this.coloured = false;
    this.map?.triggerRepaint();
  }

  repaint() {
    this.map?.triggerRepaint();
  }

  #set(kind, values, grid) {
    const before = this.#fields[kind];
    if (before?.source === values) return;
    this.#fields[kind] = { ...before, source: values, grid, fresh: true };
  }

  onAdd(map, gl) {
    this.map = map;
    this.gl = gl;
  }

  onRemove() {
    this.map = null; // what was allocated goes with the context of the map
  }

  #texture(old, width, height, format, type, internal, data) {
    const gl = this.gl;
    const texture = old ?? gl.createTexture();
    gl.bindTexture(gl.TEXTURE_2D, texture);
    gl.pixelStorei(gl.UNPACK_ALIGNMENT, 4);
    gl.pixelStorei(gl.UNPACK_FLIP_Y_WEBGL, false);
    gl.pixelStorei(gl.UNPACK_PREMULTIPLY_ALPHA_WEBGL, false);
    gl.texImage2D(gl.TEXTURE_2D, 0, internal, width, height, 0, format, type, data);
    for (const side of [gl.TEXTURE_MIN_FILTER, gl.TEXTURE_MAG_FILTER]) {
      gl.texParameteri(gl.TEXTURE_2D, side, type === gl.FLOAT ? gl.NEAREST : gl.LINEAR);
    }
    for (const side of [gl.TEXTURE_WRAP_S, gl.TEXTURE_WRAP_T])
      gl.texParameteri(gl.TEXTURE_2D, side, gl.CLAMP_TO_EDGE);
    return texture;
  }

  #upload(field) {
    const { gl } = this;
    const { grid, source } = field;
    if (field.tabled !== grid) {
      const table = (old, low, high, axis) =>
        this.#texture(old, AXIS, 1, gl.RED, gl.FLOAT, gl.R32F, positions(low, high, axis));
      field.rows = table(field.rows, grid.south, grid.north, grid.latitude);
      field.columns = table(field.columns, grid.west, grid.east, grid.longitude);
      field.tabled = grid;
    }
    const data = new Float32Array(source.length); // a loop, as callbacks of a million values take a tenth of a second
    for (let k = 0; k < data.length; k++)
      data[k] = Number.isFinite(source[k]) ? Math.max(-LARGEST, Math.min(source[k], LARGEST)) : MISSING;
    field.texture = this.#texture(field.texture, grid.columns, grid.rows, gl.RED, gl.FLOAT, gl.R32F, data);
    field.fresh = false;
  }

  #mesh(grid) {
    if (this.meshOf === grid) return;
    const { gl } = this;
    const [x, y] = [
      [grid.east - grid.west, 2],
      [grid.north - grid.south, 1],
    ].map(([span, step]) => Math.min(180, Math.max(32, Math.ceil(span / step))));
    const places = new Float32Array(2 * (x + 1) * (y + 1));
    const corners = new Uint32Array(6 * x * y);
    for (let row = 0, at = 0; row <= y; row++) {
      for (let column = 0; column <= x; column++) {
        places[at++] = grid.west + (grid.east - grid.west) * (column / x);
        places[at++] = grid.south + (grid.north - grid.south) * (row / y);
      }
    }
    for (let row = 0, at = 0; row < y; row++) {
      for (let column = 0; column < x; column++, at += 6) {
        const k = row * (x + 1) + column;
        corners.set([k, k + 1, k + x + 1, k + x + 1, k + 1, k + x + 2], at);
      }
    }
    this.corners = corners.length;
    this.vertices ??= gl.createVertexArray();
    this.buffers ??= [gl.createBuffer(), gl.createBuffer()];
    gl.bindVertexArray(this.vertices);
    gl.bindBuffer(gl.ARRAY_BUFFER, this.buffers[0]);
    gl.bufferData(gl.ARRAY_BUFFER, places, gl.STATIC_DRAW);
    gl.bindBuffer(gl.ELEMENT_ARRAY_BUFFER, this.buffers[1]);
    gl.bufferData(gl.ELEMENT_ARRAY_BUFFER, corners, gl.STATIC_DRAW);
    gl.enableVertexAttribArray(0);
    gl.vertexAttribPointer(0, 2, gl.FLOAT, false, 0, 0);
    this.meshOf = grid;
  }

  #program({ variantName, vertexShaderPrelude, define }) {
    if (this.#programs.has(variantName)) return this.#programs.get(variantName);
    const { gl } = this;
    const program = gl.createProgram();
    const shader = (kind, text) => {
      const made = gl.createShader(kind);
      gl.shaderSource(made, text);
      gl.compileShader(made);
      if (!gl.getShaderParameter(made, gl.COMPILE_STATUS)) throw new Error(gl.getShaderInfoLog(made));
      gl.attachShader(program, made);
    };
    shader(gl.VERTEX_SHADER, `#version 300 es\n${vertexShaderPrelude}\n${define}\n${VERTEX}`);
    shader(gl.FRAGMENT_SHADER, FRAGMENT);
    gl.bindAttribLocation(program, 0, "a_place");
    gl.linkProgram(program);
    if (!gl.getProgramParameter(program, gl.LINK_STATUS)) throw new Error(gl.getProgramInfoLog(program));
    const places = new Map();
    const made = {
      program,
      place: name => places.get(name) ?? places.set(name, gl.getUniformLocation(program, name)).get(name),
    };
    this.#programs.set(variantName, made);
    return made;
  }

  render(gl, { shaderData, defaultProjectionData: projection }) {
    const { values } = this.#fields;
    if (this.hidden || !values || !this.colours) return;
    const errors = this.marked ? this.#fields.errors : values;
    for (const field of [values, errors]) if (field.fresh) this.#upload(field);
    if (!this.coloured) {
      const { colours } = this;
      this.ramp = this.#texture(
        this.ramp,
        colours.length / 4,
        1,
        gl.RGBA,
        gl.UNSIGNED_BYTE,
        gl.RGBA8,
        colours,
      );
      this.coloured = true;
    }
    this.#mesh(values.grid);
    const { program, place } = this.#program(shaderData);
    gl.useProgram(program);
    gl.uniformMatrix4fv(place("u_projection_matrix"), false, projection.mainMatrix);
    gl.uniformMatrix4fv(place("u_projection_fallback_matrix"), false, projection.fallbackMatrix);
    gl.uniform4f(place("u_projection_tile_mercator_coords"), ...projection.tileMercatorCoords);
    gl.uniform4f(place("u_projection_clipping_plane"), ...projection.clippingPlane);
    gl.uniform1f(place("u_projection_transition"), projection.projectionTransition);
    const textures = {
      u_values: values.texture,
      u_rows: values.rows,
      u_columns: values.columns,
      u_colours: this.ramp,
      u_errors: errors.texture,
      u_error_rows: errors.rows,
      u_error_columns: errors.columns,
    };
    Object.entries(textures).forEach(([name, texture], unit) => {
      gl.activeTexture(gl.TEXTURE0 + unit);
      gl.bindTexture(gl.TEXTURE_2D, texture);
      gl.uniform1i(place(name), unit);
    });
    const box = ({ west, south, east, north }) => [west, south, east, north];
    gl.uniform4f(place("u_box"), ...box(values.grid));
    gl.uniform4f(place("u_error_box"), ...box(errors.grid));
    gl.uniform1f(place("u_around"), Number(values.grid.around));
    gl.uniform1f(place("u_error_around"), Number(errors.grid.around));
    gl.uniform2f(place("u_range"), ...this.range);
    gl.uniform1f(place("u_smooth"), Number(this.smooth));
    gl.uniform1f(place("u_told"), this.told);
    gl.uniform1f(place("u_fade"), Number(this.fade));
    gl.uniform1f(place("u_hatch"), this.hatch ? window.devicePixelRatio : 0);
    gl.bindVertexArray(this.vertices);
    gl.disable(gl.CULL_FACE);
    for (const turn of /mercator/i.test(shaderData.variantName) ? [-1, 0, 1] : [0]) {
      gl.uniform1f(place("u_turn"), turn);
      gl.drawElements(gl.TRIANGLES, this.corners, gl.UNSIGNED_INT, 0);
    }
    gl.bindVertexArray(null);
    if (!this.seen) performance.mark("first picture");
    this.seen = true;
  }
}

// The fractional index of a row or column at equal steps from edge to edge.
function positions(low, high, axis) {
  const last = axis.length - 1;
  const descends = last > 0 && axis[last] < axis[0];
  const k = new Float32Array(AXIS);
  for (let step = 0, cell = 0; step < AXIS; step++) {
    const x = low + ((high - low) * step) / (AXIS - 1);
    const of = i => axis[descends ? last - i : i]; // ascends
    if (last === 0) continue;
    while (cell < last - 1 && of(cell + 1) < x) cell++;
    const found = cell + (x - of(cell)) / (of(cell + 1) - of(cell));
    k[step] = Math.min(last + 0.499, Math.max(-0.499, descends ? last - found : found));
  }
  return k;
}
